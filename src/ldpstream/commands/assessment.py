"""The commands `assessment` and `registry`: a data protection officer's papers, and an entry of a public registry."""

from pathlib import Path
from typing import Annotated

import typer

from ldpstream import surveys
from ldpstream.commands.arguments import SurveyFile
from ldpstream.output.outputs import write_output
from ldpstream.output.terminal import fail, tell

app = typer.Typer()

MOST_LINES = 5  # of a paper in one error


@app.command(name="assessment")
def assessment_command(
    survey_file: SurveyFile,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="write the papers into this folder")] = None,
    check: Annotated[Path | None, typer.Option(metavar="FOLDER", help="compare the papers in this folder")] = None,
    language: Annotated[Path | None, typer.Option(metavar="FILE", help="texts (TOML)", show_default="English")] = None,
) -> None:
    """Write a data protection officer's papers: impact assessment, record of processing, notice to participants."""
    from ldpstream.promises.papers import assessment  # only here: these modules load slowly

    survey = surveys.load_survey(survey_file)
    texts = assessment.read_language(language or assessment.ENGLISH)
    papers = assessment.papers(survey, texts)
    if out is not None:
        if check is not None:
            fail("give --out to write the papers, or --check to compare them, not both")
        if taken := [path for name in papers if (path := out / f"{name}.md").exists()]:
            fail(f"{taken[0]}: exists, and people may have completed it; name another folder, or compare it with --check")
        out.mkdir(exist_ok=True)
    for name, paper in papers.items():
        if check is not None:
            path = check / f"{name}.md"
            written = path.read_text(encoding="utf-8", errors="replace")
            if lacking := assessment.missing(paper, written):
                more = f", and {len(lacking) - MOST_LINES} more" if len(lacking) > MOST_LINES else ""
                fail(f"{path}: does not fit {survey_file}, lacks: {' / '.join(lacking[:MOST_LINES])}{more}")
            tell(f"{path}: fits {survey_file}; {written.count(assessment.UNKNOWN)} places marked {assessment.UNKNOWN} are left")
        elif out is not None:
            write_output(path := out / f"{name}.md", paper)
            tell(f"{path}: complete {paper.count(assessment.UNKNOWN)} places marked {assessment.UNKNOWN}")
        else:
            tell(paper)


@app.command(name="registry")
def registry_command(survey_file: SurveyFile) -> None:
    """Print an entry (YAML) for the public registry of deployments of differential privacy."""
    from ldpstream.promises.papers.registry import registry_entry
    from ldpstream.runtime.versions import running_version

    tell(registry_entry(surveys.load_survey(survey_file), running_version()).rstrip())
