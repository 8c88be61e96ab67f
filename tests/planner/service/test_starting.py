"""What a server says when it is started, and what keeps it from that."""

from __future__ import annotations

import os

import pytest
from serving import serving

from launch.mpi.mpirun import needs_root_option
from planner.store import Store

REFUSED = "every training will be refused"


@pytest.mark.parametrize(
    ("use_case", "reason"),
    [
        ("nowhere.py:Mine", "no such file"),
        ("case.py:Mime", "did you mean Mine?"),
        ("simplebug", "did you mean simplebig?"),
        ("nowhere:Mine", "no module"),
    ],
)
def test_a_use_case_that_is_not_there_is_refused_and_none_is_imported(ddlplan, use_case, reason):
    (ddlplan.folder / "case.py").write_text("raise SystemExit('imported')\nclass Mine: ...\n")
    refused = ddlplan.run("serve", "--use-case", "case.py:Mine", "--use-case", use_case)
    assert reason.lower() in refused.refusal().lower()


def test_an_ssh_configuration_that_is_not_there_is_refused_at_once(ddlplan):
    """It served, and each job on other hosts failed."""
    error = ddlplan.run("serve", "--ssh-config", "missing").refusal()
    assert error == "error: ssh configuration missing: no such file or folder"


def test_without_a_database_its_whole_path_is_told_and_root_that_trainings_will_be_refused(
    tmp_path, own_locks
):
    """The story: who copied a command into another folder began another database there."""
    with serving(tmp_path, "--db", "mine.db", "--allow-actions") as started:
        assert f"there is no database {tmp_path / 'mine.db'} yet" in started.err
        assert (REFUSED in started.err) == needs_root_option(os.environ)
        assert started.ask("/api/v1/plans").status == 200
        page = started.ask("/").body.decode()
    assert f"<code>ddlplan probe --db {tmp_path / 'mine.db'}</code>" in page


def test_with_a_database_the_file_of_the_token_is_told_by_its_whole_path_and_nothing_warned_of(
    tmp_path, own_locks
):
    Store.open(str(tmp_path / "mine.db")).close()
    (tmp_path / "token").write_text("t" * 43)
    (tmp_path / "token").chmod(0o600)
    options = ("--db", "mine.db", "--token-file", "token")
    may_train = ("--allow-actions", "--allow-run-as-root")
    with serving(tmp_path, *options, *may_train, has_token_file=False) as started:
        told = f"sign in with the token in the file {tmp_path / 'token'}"
        started.wait_for(lambda: told in started.err)
        assert "no database" not in started.err
        assert REFUSED not in started.err
