import pytest

from probes.network.interfaces import find_source, read_addresses, read_networks, read_subnets

ADDRESSES = {
    "lo": ("127.0.0.1", "::1"),
    "eth0": ("192.0.2.7", "2001:db8::7"),
}


def interface(name, *, speed="-1", state="up", flags="0x1003", kind="1", **files):
    folder = f"sys/class/net/{name}/"
    return {
        folder + "speed": speed,
        folder + "operstate": state,
        folder + "flags": flags,
        folder + "type": kind,
    } | {folder + path: text for path, text in files.items()}


def read_one(tree, files):
    (found,) = read_networks(tree(files), ADDRESSES)
    return found


def test_physical_interface_has_its_speed_in_bytes(tree):
    found = read_one(tree, interface("eth0", speed="10000\n", **{"device/vendor": "0x1"}))
    assert found.kind == "physical"
    assert found.is_up
    assert found.speed_bytes_per_s == 1.25e9
    assert found.addresses == ("192.0.2.7", "2001:db8::7")


@pytest.mark.parametrize("speed", ["-1", "0", "4294967295", "nonsense"])
def test_unknown_speed_is_absent(tree, speed):
    assert read_one(tree, interface("eth0", speed=speed)).speed_bytes_per_s is None


@pytest.mark.parametrize(
    ("name", "files", "kind"),
    [
        ("lo", {"kind": "772"}, "loopback"),
        ("docker0", {"bridge/bridge_id": "8"}, "docker"),
        ("br-0123456789ab", {"bridge/bridge_id": "8"}, "docker"),
        ("docker_gwbridge", {"bridge/bridge_id": "8"}, "docker"),
        ("br0", {"bridge/bridge_id": "8"}, "bridge"),
        ("br-lan", {"bridge/bridge_id": "8"}, "bridge"),
        ("bond0", {"bonding/mode": "802.3ad"}, "bond"),
        ("veth1", {}, "virtual"),
    ],
)
def test_kinds_are_told_apart(tree, name, files, kind):
    assert read_one(tree, interface(name, **files)).kind == kind


def test_interface_without_a_state_is_judged_by_its_flags(tree):
    files = interface("lo", state="unknown", flags="0x9", kind="772")
    assert read_one(tree, files).is_up
    assert not read_one(tree, interface("lo", state="unknown", flags="0x8", kind="772")).is_up


def test_interface_without_a_cable_is_down(tree):
    assert not read_one(tree, interface("eth0", state="down")).is_up


def test_plain_file_among_the_interfaces_is_left_out(tree):
    files = interface("eth0") | {"sys/class/net/bonding_masters": "bond0"}
    assert read_one(tree, files).name == "eth0"


def test_machine_without_interfaces_has_none(tree):
    assert read_networks(tree({}), {}) == ()


def test_interfaces_of_this_machine_hold_the_loopback():
    loopback = [found for found in read_networks() if found.kind == "loopback"]
    assert [found.speed_bytes_per_s for found in loopback] == [None] * len(loopback)
    assert any("127.0.0.1" in found.addresses for found in loopback)


@pytest.mark.parametrize("address", ["node7", "", "999.1.1.1", "127.0.0.1; ls"])
def test_what_is_no_address_leads_nowhere(address):
    assert find_source(address) is None


def test_addresses_of_this_machine_have_the_length_of_their_prefix():
    assert "127.0.0.1/8" in read_subnets()["lo"]
    held = {text.partition("/")[0] for found in read_subnets().values() for text in found}
    assert held == {address for found in read_addresses().values() for address in found}


def test_packets_to_this_machine_carry_its_own_address():
    assert find_source("127.0.0.1") == "127.0.0.1"
