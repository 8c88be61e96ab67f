"""Programs: what a command's words mean, and where the shim goes."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from launch.errors import ScriptError
from launch.scripts.program import Program, ProgramKind

SHIM = Path("/shim.py")


def parse(*words: str, **choices: tuple) -> Program:
    """Parse a list, as the command line gives it: `accelerate launch` was found in tuples alone."""
    return Program.parse([*words], cores=4, choices=choices)


def test_placeholders_are_filled_and_doubled_braces_are_braces():
    program = parse(
        "python", "train.py", "--batch={batch}", '{{"a": "{lr}"}}', batch=(8,), lr=("x",)
    )
    assert program.placeholders == ("batch", "lr")
    assert program.fill({"batch": 16, "lr": "y z"}) == (
        "python",
        "train.py",
        "--batch=16",
        '{"a": "y z"}',
    )


def test_first_choice_is_the_users_own():
    program = parse("python", "t.py", "{batch}", "{workers}", "{threads}", batch=(32, 64))
    assert program.own_values == {"batch": 32, "workers": 0, "threads": 4}
    assert program.choices["threads"] == (4, 2, 1)
    assert program.choices["workers"] == (0, 1, 2, 4)


@pytest.mark.parametrize(
    ("words", "choices", "says"),
    [
        (("python", "t.py", "{batch}"), {}, "placeholder {batch} without choices: add --choices"),
        (("python", "t.py", "{x}"), {}, "placeholder {x} without choices"),
        (("python", "t.py"), {"batch": (8,)}, "no {batch} in the command"),
        (("python", "t.py", "{batch}"), {"batch": (8, 8)}, "name each once"),
        (("python", "t.py", "{batch}"), {"batch": (0,)}, "batch=0: use a whole number"),
        (("python", "t.py", "{workers}"), {"workers": ("a",)}, "workers=a: use a whole number"),
        (
            ("torchrun", "--nproc-per-node", "{processes}", "t.py"),
            {"processes": (1, 8)},
            "processes=8 and usable_cores=4: use at most 4",
        ),
        (("python", "t.py", "{threads}"), {"threads": (8,)}, "threads=8 and usable_cores=4"),
        (
            ("torchrun", "--nproc-per-node", "{processes}", "t.py", "{threads}"),
            {"processes": (1, 4), "threads": (4,)},
            "processes=4 with threads=4 and usable_cores=4: use at most 1, or",
        ),
        (
            ("torchrun", "--nproc-per-node", "{processes}", "t.py", "{threads}"),
            {"processes": (2,), "threads": (1, 4)},
            "threads=4 with processes=2 and usable_cores=4: use at most 2, or",
        ),
        (("python", "t.py", '{"a": 1}'), {}, "a brace alone"),
        (("python",), {}, "name a file"),
        (("python", "-"), {}, "name a file"),
        (("python", "-m"), {}, "-m and nothing behind it"),
        (("torchrun", "--nproc-per-node", "2"), {}, "torchrun without a script"),
        (("torchrun", "--no-python", "a"), {}, "torchrun --no-python"),
        (("torchrun", "--no_p", "a"), {}, "torchrun --no_p"),
        (("accelerate", "launch", "--cpu", "a"), {}, "accelerate launch without a file that ends"),
        (("accelerate", "launch", "-m", "--cpu", "a", "t.py"), {}, "name the module right behind"),
        (("accelerate", "launch", "--no-python", "a", "t.py"), {}, "accelerate launch --no-python"),
        (("./train", "a"), {}, "no Python program found"),
        (
            ("python", "t.py", "--b={bacth}", "{workers}"),
            {"batch": (8, 16)},
            "placeholder {bacth} without choices: did you mean {batch}?",
        ),
        (("python", "t.py", "{worker}"), {}, "did you mean {workers}?"),
        (("python t.py {batch}",), {"batch": (8,)}, "is one word: leave out the quotes around"),
        (("LR=1", "python", "t.py"), {}, "sets a variable: -- env LR=1 python t.py"),
        ((), {}, "no command after --"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(words, choices, says):
    with pytest.raises(ScriptError) as raised:
        parse(*words, **choices)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("command", "kind", "shimmed"),
    [
        ("python train.py -x", ProgramKind.PYTHON_FILE, "python /shim.py train.py -x"),
        (
            "/usr/bin/python3.12 -u -W ignore -X dev train.py -m x",
            ProgramKind.PYTHON_FILE,
            "/usr/bin/python3.12 -u -W ignore -X dev /shim.py train.py -m x",
        ),
        ("python -m a.b -x", ProgramKind.PYTHON_MODULE, "python /shim.py -m a.b -x"),
        ("python -um a.b", ProgramKind.PYTHON_MODULE, "python -u /shim.py -m a.b"),
        ("python -ma.b", ProgramKind.PYTHON_MODULE, "python /shim.py -m a.b"),
        ("python -uW error t.py", ProgramKind.PYTHON_FILE, "python -uW error /shim.py t.py"),
        ("python -Wm -Xm=1 t.py", ProgramKind.PYTHON_FILE, "python -Wm -Xm=1 /shim.py t.py"),
        ("python -c pass x", ProgramKind.PYTHON_CODE, "python /shim.py -c pass x"),
        ("numactl -N 0 python t.py", ProgramKind.PYTHON_FILE, "numactl -N 0 python /shim.py t.py"),
        ("mpirun -n 2 python t.py", ProgramKind.PYTHON_FILE, "mpirun -n 2 python /shim.py t.py"),
        (
            "torchrun --standalone --nproc-per-node 2 t.py --standalone",
            ProgramKind.TORCHRUN,
            "torchrun --standalone --nproc-per-node 2 /shim.py t.py --standalone",
        ),
        (
            "torchrun -t3 --nproc-per-node 2 -r 3 t.py x",
            ProgramKind.TORCHRUN,
            "torchrun -t3 --nproc-per-node 2 -r 3 /shim.py t.py x",
        ),
        (
            "torchrun --virtual-local-rank t.py x",
            ProgramKind.TORCHRUN,
            "torchrun --virtual-local-rank /shim.py t.py x",
        ),
        (
            "torchrun --nproc-per-node=2 -m a.b x",
            ProgramKind.TORCHRUN,
            "torchrun --nproc-per-node=2 /shim.py -m a.b x",
        ),
        (
            "torchrun --standal --nproc_per_nod 2 -- t.py x",
            ProgramKind.TORCHRUN,
            "torchrun --standal --nproc_per_nod 2 -- /shim.py t.py x",
        ),
        (
            "torchrun --nproc-per-node=2 --mod -- a.b x",
            ProgramKind.TORCHRUN,
            "torchrun --nproc-per-node=2 -- /shim.py -m a.b x",
        ),
        (
            "python -m torch.distributed.run --nproc-per-node 2 t.py",
            ProgramKind.TORCHRUN,
            "python -m torch.distributed.run --nproc-per-node 2 /shim.py t.py",
        ),
        (
            "accelerate launch --cpu --num_processes 2 t.py x.py",
            ProgramKind.TORCHRUN,
            "accelerate launch --cpu --num_processes 2 /shim.py t.py x.py",
        ),
        # The story: the shim stood in front of x.py, an argument that the script was then given.
        (
            "accelerate launch --cpu --module a.b x.py",
            ProgramKind.TORCHRUN,
            "accelerate launch --cpu /shim.py -m a.b x.py",
        ),
        (
            "accelerate launch --cpu t.pyz x.py",
            ProgramKind.TORCHRUN,
            "accelerate launch --cpu /shim.py t.pyz x.py",
        ),
        (
            "accelerate launch --num_processes 2 train -m x.py",
            ProgramKind.TORCHRUN,
            "accelerate launch --num_processes 2 /shim.py train -m x.py",
        ),
    ],
)
def test_shim_stands_in_front_of_what_trains(command, kind, shimmed):
    program = parse(*command.split())
    assert program.kind is kind
    assert program.with_shim(program.fill({}), SHIM) == tuple(shimmed.split())


@pytest.mark.parametrize(
    ("command", "target"),
    [
        ("python -u train.py a.py", "train.py"),
        ("numactl -N 0 python -ma.b x", "a.b"),
        ("torchrun --nproc-per-node 2 -m a.b x", "a.b"),
        ("torchrun --nproc-per-node 2 t.py", "t.py"),
        ("accelerate launch -m a.b x.py", "a.b"),
        # The story: a script without .py was passed over, and its argument taken for the script.
        ("accelerate launch train x.py", "train"),
        ("accelerate launch --num_processes 2 --cpu --mixed_precision=no train x.py", "train"),
    ],
)
def test_target_is_what_trains(command, target):
    assert parse(*command.split()).target == target


def test_another_program_is_taken_as_it_is():
    program = Program.parse(["./train", "{threads}"], cores=2, is_python=False)
    assert program.kind is ProgramKind.OTHER
    assert program.fill({"threads": 2}) == ("./train", "2")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["no-such-program", "x.py"], "program 'no-such-program' not found"),
        (["./python", "x.py"], "program './python' not found"),
        (["python", "x.py"], r"program 'python' not found: did you mean python3\?"),
        (["torchrun", "x.py"], "program 'torchrun' not found: check its name and PATH"),
        (["64", "python", "x.py"], "program '64' not found: a comma, and no space, is between"),
        (["python3", "x.py"], "no file 'x.py'"),
        (["python3", "x" * 300], "no file 'xxx"),  # where Python cannot look, too
        (["python3", "trian.py"], "no file 'trian.py' in .*: did you mean train.py?"),
    ],
)
def test_what_is_missing_is_named(words, says, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").write_text("")
    (tmp_path / "train.py").write_text("")
    (tmp_path / "bin/python3").chmod(0o700)
    program = Program.parse(words, cores=2, is_python=False)
    with pytest.raises(ScriptError, match=says):
        program.check(program.fill({}), tmp_path, str(tmp_path / "bin"))


@pytest.mark.parametrize(
    ("command", "is_refused"),
    [
        ("accelerate launch --cpu train x.py", True),
        ("accelerate launch --cpu --num_processes=1 train x.py", False),
        ("accelerate launch --config_file=train x.py", False),
        ("accelerate launch --num_processes 2 x.py train", False),
    ],
)
def test_file_that_may_be_the_script_of_accelerate_or_a_value_is_refused(
    command, is_refused, tmp_path
):
    """Behind a flag it was taken for the value of that, and an argument of it for the script."""
    for name in ("accelerate", "train", "x.py"):
        (tmp_path / name).touch(0o700)
    program = parse(*command.split())
    refused = pytest.raises(ScriptError, match="whether 'train' is its value or the script")
    with refused if is_refused else nullcontext():
        program.check(program.fill({}), tmp_path, str(tmp_path))


@pytest.mark.parametrize(
    ("command", "target"),
    [
        ("torchrun --no-python ./train", "torchrun"),
        ("accelerate launch --cpu a", "accelerate"),
        ("train python x", "x"),
    ],
)
def test_words_of_a_program_that_is_no_python_are_its_own(command, target, tmp_path):
    """They were refused as those of a Python program, with --no-python too."""
    words = command.split()
    (tmp_path / words[0]).write_text("")
    (tmp_path / words[0]).chmod(0o700)
    program = Program.parse(words, cores=2, is_python=False)
    program.check(program.fill({}), tmp_path, str(tmp_path), is_python=False)
    assert program.target == target
