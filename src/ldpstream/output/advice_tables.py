"""Output of `advise`: the table of mechanisms, the reasons, and an attribute to paste into a survey."""

from typing import Any

from rich.table import Table

from ldpstream.mechanisms.claims.guessing import percent
from ldpstream.mechanisms.wording import plural
from ldpstream.output.terminal import table
from ldpstream.planning.advise import Advice, Question
from ldpstream.planning.toml_text import attribute_lines
from ldpstream.promises.promise import nats


def option_table(advice: Advice) -> Table:
    question, guessed = advice.question, percent(1 / advice.first.claims.guessed)
    span, steps = f"{question.window:,}\nsteps", f"{question.steps:,}\nsteps"
    shown = table(f"Mechanisms for k = {question.k:,}, {plural(question.people, 'person', 'people')}", "mechanism",
                  "error:\na step", span, steps, "guess:\na report", steps, "weight", "bytes")  # fmt: skip
    for option in advice.options:
        mark = "*" if option.mechanism == advice.first.name else ""
        errors = ("> 100" if error > 1 else f"{100 * error:.3g}" for error in option.errors.values())
        guesses = (chance.text.replace("at most", "≤") for chance in (option.guess_one, option.guess_all))
        shown.add_row(
            option.mechanism + mark, *errors, *guesses, f"{option.weight:.3g}", f"{option.report_bytes:,}",
            style="dim" if option.dominated_by else None,
        )  # fmt: skip
    of = f"of a share of {_share(question)}, in percentage points"
    if question.numbers:
        of = "of the mean of equally frequent bins, in per cent of the range"
    dominated = [f"{option.mechanism} by {option.dominated_by}" for option in advice.options if option.dominated_by]
    shown.caption = (
        f"error: exact standard error {of}, if values do not change.\n"
        f"guess: chance of a right guess of a value that never changes; {guessed} without reports; ≤: upper bound.\n"
        "weight: number of honest people whom one false report outweighs in a share. *: the advised mechanism."
        + (f"\ndominated, that is, no better in any column: {', '.join(dominated)}." if dominated else "")
    )
    return shown


def _share(question: Question) -> str:
    return f"1/{question.k:,}" if question.choices is None else f"{question.choices}/{question.k + question.choices}"


def reasons(advice: Advice) -> list[str]:
    m, question = advice.first, advice.question
    t = m.reports_in(question.steps)
    of = f"The {plural(t, 'report')} of {plural(question.steps, 'step')}"
    any_values = f"between any two sequences of values, they lose at most {nats(m.eps_sequence(t).value)}"
    if m.memoized:
        half = " (ε₁ was set to a half of ε∞)" if question.eps_1 is None else ""
        lost = (
            f"{of} lose at most {nats(m.eps_t(t))} if the value does not change, and any number of reports "
            f"{nats(m.eps_inf)}{half}; {any_values}. If values change, give --eps with --every-steps; "
            "of the memoized mechanisms, L-OLH then loses least."
        )
    else:
        lost = f"{of} lose at most {nats(m.eps_t(t))}, also if values change."
    refused = [f"{name} is not possible: {why}." for name, why in advice.refused.items()]
    like = "" if advice.options[0].mechanism == m.name else " to within 1 %, and a false report has less weight"
    return [f"{m.name}: the smallest exact error of a window{like}.", lost, *refused]


def stanza(advice: Advice) -> str:
    """An attribute to paste into a survey."""
    asked = advice.question.attribute(advice.first.name)
    asked["level"][0] |= {"memo_size": size} if (size := advice.first.parameters().memo_size) else {}
    return "\n".join(attribute_lines(asked))


def as_json(advice: Advice) -> dict[str, Any]:
    return {
        "question": advice.question, "window_steps": advice.question.window, "mechanisms": advice.options,
        "refused": advice.refused, "advised": advice.first.name, "reasons": reasons(advice), "survey": stanza(advice),
    }  # fmt: skip
