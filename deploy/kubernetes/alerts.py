"""Turns deploy/prometheus/alerts.yaml into a PrometheusRule: `python deploy/kubernetes/alerts.py` writes base/alerts.yaml."""

from pathlib import Path

HERE = Path(__file__).parent
HEAD = """# Made by alerts.py from deploy/prometheus/alerts.yaml; make changes there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: ldpstream
  labels: { app.kubernetes.io/name: ldpstream }
spec:
"""


def rule() -> str:
    rules = (HERE.parent / "prometheus" / "alerts.yaml").read_text()
    groups = rules[rules.index("groups:") :]
    return HEAD + "".join(f"  {line}\n" if line else "\n" for line in groups.splitlines())


if __name__ == "__main__":
    (HERE / "base" / "alerts.yaml").write_text(rule())
