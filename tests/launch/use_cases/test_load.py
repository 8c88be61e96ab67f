"""A use case is found by name, module or file, and held against the contract."""

import pickle
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from launch.errors import UseCaseError
from launch.training.schedule import make_schedule
from launch.use_cases import resolve
from launch.use_cases._base import is_own
from launch.use_cases._imports import find_users_line

TINY = """
import torch

class Tiny:
    name = "tiny"

    def model(self):
        return torch.nn.Sequential(torch.nn.Linear(2, 3))

    def dataset(self, data, *, train):
        return [(torch.zeros(2), 0)]

    def loss(self, output, target):
        return torch.nn.functional.cross_entropy(output, target)

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.1)

made = Tiny()
"""
fresh = count()


def load_use_case(name):
    return resolve(name).load()


def check_use_case(name):
    resolve(name).check()


def spell(name):
    return str(resolve(name))


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes modules whose names no other test has imported; imports leave no trace."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)

    def write_module(text: str) -> Path:
        file = tmp_path / f"own_case_{next(fresh)}.py"
        file.write_text(text)
        return file

    return write_module


def message(spec: str, ask=load_use_case) -> str:
    with pytest.raises(UseCaseError) as caught:
        ask(spec)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_class_in_a_file_is_made_an_instance(write):
    case = load_use_case(f"{write(TINY)}:Tiny")
    assert case.name == "tiny"
    assert case.model()[0].out_features == 3


def test_instance_in_a_module_of_the_current_folder_loads(write):
    assert load_use_case(f"{write(TINY).stem}:made").name == "tiny"


def test_object_without_optional_methods_gets_the_defaults(write):
    case = load_use_case(f"{write(TINY)}:Tiny")
    model = case.model()
    assert case.default_batch == 32
    assert case.layers(model) is model
    assert case.metrics(None, None) == {}
    assert case.prepare(None, None) is None


def test_use_case_can_be_pickled(write):
    case = load_use_case(f"{write(TINY)}:Tiny")
    assert pickle.loads(pickle.dumps(case)).name == "tiny"
    assert type(case.subject).__name__ == "Tiny"


def test_model_that_is_no_sequence_has_no_layers(write):
    case = load_use_case(f"{write(TINY)}:Tiny")
    assert case.layers(case.model()[0]) is None


def test_own_optional_methods_are_kept(write):
    own = TINY + "\nTiny.default_batch = 7\nTiny.metrics = lambda self, o, t: {'seen': 1.0}\n"
    case = load_use_case(f"{write(own)}:Tiny")
    assert case.default_batch == 7
    assert case.metrics(None, None) == {"seen": 1.0}


def test_class_may_inherit_the_defaults(write):
    own = TINY.replace(
        "class Tiny:", "from launch.use_cases._base import UseCase\nclass Tiny(UseCase):"
    )
    assert load_use_case(f"{write(own)}:Tiny").default_batch == 32


def test_file_may_import_its_neighbour(write):
    neighbour = write(TINY)
    assert load_use_case(f"{write(f'from {neighbour.stem} import Tiny')}:Tiny").name == "tiny"


def test_file_whose_name_is_taken_still_loads(write, tmp_path):
    write("")
    for name in ("json.py", "with-hyphen.py"):
        (tmp_path / name).write_text(TINY)
        assert load_use_case(f"{tmp_path / name}:Tiny").name == "tiny"


def test_nested_object_loads(write):
    own = TINY + "\nclass Group:\n    Inner = Tiny\n"
    assert load_use_case(f"{write(own)}:Group.Inner").name == "tiny"


def test_relative_and_absolute_path_are_the_same_use_case(write):
    file = write(TINY)
    assert spell(f"{file.name}:Tiny") == spell(f"{file}:Tiny") == f"{file}:Tiny"
    assert spell("simplebig") == "simplebig"
    assert spell("package.module:Case") == "package.module:Case"


@pytest.mark.parametrize("ask", [check_use_case, load_use_case, spell])
def test_unknown_name_suggests_the_nearest(ask):
    text = message("simplbig", ask)
    assert text.startswith("unknown use case 'simplbig': did you mean simplebig? choose one of ")


@pytest.mark.parametrize("spec", ["", ":", "case.py:", ":Case", "case.py:1st", "a b:Case"])
def test_text_that_names_nothing_says_what_to_write(spec):
    assert "path/to/file.py:object" in message(spec, check_use_case) or "no module" in message(spec)


def test_file_without_object_says_how_to_name_one():
    assert message("case.py", check_use_case).endswith("write case.py:MyCase")


def test_file_without_any_use_case_is_told_what_to_do_with_a_script(write):
    """It was told to write a class that the file does not have."""
    file = write("print(1)\n")
    text = message(f"{file}", check_use_case)
    assert "MyCase" not in text
    assert f"ddlplan init {file} drafts one, and ddlplan tune -- python {file} " in text


def test_file_without_object_is_given_its_use_case(write):
    file = write(TINY)
    assert message(f"{file}", check_use_case).endswith(f"write {file}:Tiny")


@pytest.mark.parametrize("place", ["net.py:Net", "net.py:Net:Data", "net:Net", "nets.net:Net:Data"])
def test_misspelt_adapter_is_told_the_nearest(place):
    """The story: with two objects, or of a module, it was no module name and no .py file."""
    said = message(f"lighting:{place}", check_use_case)
    assert f"there is no adapter 'lighting': did you mean lightning:{place}?" in said


def test_missing_object_suggests_the_nearest(write):
    assert "no 'Tin': did you mean Tiny?" in message(f"{write(TINY)}:Tin", check_use_case)


def test_a_local_variable_is_no_object(write):
    file = write("def make():\n    mask = 1\n")
    assert "no 'mak': did you mean make?" in message(f"{file}:mak", check_use_case)


def test_object_that_a_star_import_may_bring_is_left_to_the_import(write):
    file = write("from json import *")
    check_use_case(f"{file}:Case")
    assert "no 'Case'" in message(f"{file}:Case")


def test_checking_runs_no_user_code(write):
    check_use_case(f"{write('raise SystemExit(3)' + TINY)}:Tiny")


def test_unknown_module_is_told_before_any_import():
    assert "no module 'nosuchpackage'" in message("nosuchpackage.case:Case", check_use_case)


def test_syntax_error_is_told_with_its_line(write):
    text = message(f"{write('x = 1' + chr(10) + 'def')}:x", check_use_case)
    assert "line 2" in text
    assert "fix it" in text


def test_file_that_cannot_be_parsed_or_read_is_told(write, tmp_path):
    """The story: a long sum was called a bug, and a device in place of a file was read for ever."""
    assert "maximum recursion depth exceeded" in message(f"{write('x = a' + ' + a' * 5000)}:x")
    assert "No such file" in message("nowhere/case.py:Case", check_use_case)
    assert "Is a directory" in message(f"{tmp_path}:Case", check_use_case)
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    assert "it is no regular file" in message(f"{tmp_path}/zero.py:Case", check_use_case)
    assert "File name too long" in message(f"{tmp_path}/{'long' * 99}.py:Case", check_use_case)
    assert "no adapter 'a'" in message(f"a:{'long' * 99}:Case", check_use_case)
    (tmp_path / "loop.py").symlink_to("loop.py")
    for place in ("loop.py", "~no_such_user/case.py"):
        assert message(f"{place}:Case", check_use_case).endswith(": name a Python file")
    assert "~no_such_user/case.py:MyCase" in message("~no_such_user/case.py", check_use_case)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import nosuchmodule", "ModuleNotFoundError: No module named 'nosuchmodule'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import json; json.loads('{')", "JSONDecodeError: "),
    ],
)
def test_file_that_raises_is_told_with_the_users_line(write, code, expected):
    file = write(f"\n\n{code}\nCase = 1")
    text = message(f"{file}:Case")
    assert expected in text
    assert f"({file}, line 3)" in text


def test_users_line_is_told_wherever_python_is(write, monkeypatch):
    """The story: below /usr, where the system has its Python, a user's modules counted as that."""
    helper = write("1 / 0")
    monkeypatch.setattr(sys, "prefix", str(helper.parent))
    file = write(f"import {helper.stem}\nCase = 1")
    assert f"({helper}, line 1)" in message(f"{file}:Case")


def test_users_line_is_told_where_the_current_folder_is_gone(tmp_path, monkeypatch):
    """The story: then nobody could say where a file `<string>` is, and that was the error."""
    with pytest.raises(ZeroDivisionError) as raised:
        exec("1 / 0")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert str(find_users_line(raised.value, "a use case")).startswith(f"{__file__}, line ")


def test_what_torch_has_compiled_is_no_line_of_the_users(tmp_path, monkeypatch):
    """The story: where memory was short in a compiled step, a file of the cache was named."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    names = {}
    exec(compile("def call():\n    1 / 0", str(tmp_path / "ab" / "cab.py"), "exec"), names)
    with pytest.raises(ZeroDivisionError) as raised:
        names["call"]()
    assert str(find_users_line(raised.value, "a use case")).startswith(f"{__file__}, line ")


def test_class_that_cannot_be_made_is_told(write):
    file = write("class Case:\n    def __init__(self, size): ...")
    assert "Case needs size: give --set size=VALUE" in message(f"{file}:Case")


def test_missing_methods_are_all_named(write):
    own = TINY.replace("def loss", "def lost").replace("def optimizer", "def optimiser")
    text = message(f"{write(own)}:Tiny")
    assert text.endswith(
        "lacks loss(output, target) (is lost meant?), optimizer(parameters) (is optimiser meant?): "
        "add what is missing"
    )


def test_a_step_of_ones_own_needs_no_loss(write):
    own = TINY.replace("def loss(self, output, target)", "def step(self, model, batch)")
    case = load_use_case(f"{write(own)}:Tiny")
    assert is_own(case, "step")
    assert not is_own(case, "weight")


@pytest.mark.parametrize("more", ["", ", epochs", ", *others"])
def test_a_schedule_may_ask_for_the_epochs_and_need_not(write, more):
    last = {"": "None", ", epochs": "epochs", ", *others": "others[0]"}[more]
    own = TINY + f"\nTiny.schedule = lambda self, optimizer, steps{more}: (steps, {last})\n"
    case = load_use_case(f"{write(own)}:Tiny")
    made = make_schedule(case, None, steps_per_epoch=5, epochs=3)
    assert made == (5, 3 if more else None)


def test_a_name_of_another_library_counts_as_missing_with_the_right_one(write):
    own = TINY.replace("def loss", "def training_step").replace("def model", "def build_model")
    text = message(f"{write(own)}:Tiny")
    assert "lacks model() (is build_model meant?), loss(output, target): add" in text


def test_inherited_placeholder_counts_as_missing(write):
    own = "from launch.use_cases._base import UseCase\nclass Case(UseCase): name = 'x'"
    assert "lacks model()" in message(f"{write(own)}:Case")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("*, train", "train_", "dataset(self, data, *, train)"),
        ("output, target):", "output):", "loss(self, output, target)"),
        ('"tiny"', "5", "name=5"),
        ('name = "tiny"', 'name = "tiny"; default_batch = 0', "default_batch=0"),
        ('name = "tiny"', 'name = "tiny"; layers = 3', "layers must be a method"),
    ],
)
def test_another_shape_is_told_with_the_way_out(write, old, new, expected):
    assert expected in message(f"{write(TINY.replace(old, new))}:Tiny")


def test_names_and_summaries_need_no_torch():
    program = (
        "import sys; from launch.use_cases import *; from launch import use_cases as u;"
        "assert u.use_case_names() == sorted(u.use_case_summaries());"
        "assert all(u.use_case_summaries().values());"
        "u.resolve('simplebig').check(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
