"""The network of a job: never loopback, never Docker's bridge, but what the names mean."""

from __future__ import annotations

from dataclasses import replace

from host_answers import DOCKER, LOOPBACK, facts_of, hold

from launch.hosts.network_choice import choose_networks


def choose(hosts, reached_addresses=None):
    reached_addresses = {name: facts.reached_at for name, facts in hosts.items()} | (
        reached_addresses or {}
    )
    return choose_networks(hosts, reached_addresses)


def pair(*networks, **options):
    """Two hosts, each with its number as the last part of an address on each network."""
    return {
        f"node{number}": facts_of(
            number,
            addresses=(LOOPBACK, DOCKER, *(network(number) for network in networks)),
            **options,
        )
        for number in (1, 2)
    }


def slow(number):
    return hold(f"10.0.0.{number}", "10.0.0.0/24", speed=1.25e8)


def fast(number):
    return hold(f"10.1.0.{number}", "10.1.0.0/24", interface="ib0", speed=1.25e10)


def virtual(_number):
    return hold("192.168.122.1", "192.168.122.0/24", interface="virbr0", kind="bridge")


def test_one_host_needs_no_network():
    assert choose({"node1": facts_of(1)}).networks == ()


def test_loopback_and_docker_are_never_chosen():
    assert choose(pair(slow)).networks == ("10.0.0.0/24",)
    choice = choose(pair())
    assert choice.networks == ()
    assert set(choice.unreached) == {"node1", "node2"}


def test_second_address_of_the_loopback_is_never_chosen():
    """Debian gives a host's own name 127.0.1.1."""

    def own_name(number):
        return hold(f"127.0.1.{number}", "127.0.0.0/8", interface="eth0")

    assert choose(pair(own_name, slow)).networks == ("10.0.0.0/24",)


def test_network_on_which_two_hosts_have_the_same_address_is_each_ones_own():
    assert choose(pair(virtual, slow)).networks == ("10.0.0.0/24",)


def test_names_decide_between_networks_and_the_faster_one_is_pointed_out():
    choice = choose(pair(slow, fast))
    assert choice.networks == ("10.0.0.0/24",)
    assert choice.faster == "10.1.0.0/24"
    reached = {"node1": "10.1.0.1", "node2": "10.1.0.2"}
    choice = choose(pair(slow, fast), reached)
    assert choice.networks == ("10.1.0.0/24",)
    assert choice.faster is None


def test_faster_network_is_chosen_where_names_do_not_tell():
    assert choose(pair(slow, fast, reached_at=None)).networks == ("10.1.0.0/24",)


def link(number):
    return hold(f"fe80::{number}", "fe80::/64")


def test_addresses_of_version_4_come_first_and_link_local_ones_last():
    """The story: those of version 4 came before the network of version 6 that all hosts had."""

    def six(number):
        return hold(f"2001:db8::{number}", "2001:db8::/64")

    def cable(number):
        return hold(f"169.254.0.{number}", "169.254.0.0/16")

    assert choose(pair(cable, six, slow, reached_at=None)).networks == ("10.0.0.0/24",)
    assert choose(pair(cable, six, reached_at=None)).networks == ("2001:db8::/64",)
    assert choose(pair(cable, reached_at=None)).networks == ("169.254.0.0/16",)


def alone(number, routes):
    """A host on a network with a router and nobody else."""
    address = f"10.0.{number}.1"
    held = hold(address, f"10.0.{number}.0/24")
    found = {f"10.0.{other}.1": address for other in routes}
    return facts_of(number, addresses=(LOOPBACK, held), reached_at=address, routes=found)


def test_hosts_that_routes_join_use_the_networks_from_which_they_send():
    choice = choose({"a": alone(1, [2]), "b": alone(2, [1])})
    assert choice.is_routed
    assert choice.networks == ("10.0.1.0/24", "10.0.2.0/24")
    assert choice.unreached == {}


def test_link_local_addresses_of_version_6_join_no_hosts():
    """The story: each interface has one of version 6, so that hosts of a cloud and those behind
    routers were all on one network, over which MPI reaches none of them."""

    def linked(number, other):
        facts = alone(number, [other])
        return replace(facts, addresses=(link(number), *facts.addresses))

    choice = choose({"a": linked(1, 2), "b": linked(2, 1)})
    assert choice.is_routed
    assert choice.networks == ("10.0.1.0/24", "10.0.2.0/24")
    assert set(choose(pair(link)).unreached) == {"node1", "node2"}


def test_route_must_lead_both_ways():
    choice = choose({"a": alone(1, [2]), "b": alone(2, [])})
    assert choice.networks == ()
    assert set(choice.unreached) == {"a", "b"}


def test_only_the_host_without_a_route_is_left_out():
    choice = choose({**pair(slow), "far": alone(7, [])})
    assert choice.networks == ("10.0.0.0/24",)
    assert choice.unreached == {"far": "node1"}


def test_addresses_of_a_cloud_that_are_networks_of_their_own_are_routed():
    def cloud(number, other):
        held = hold(f"10.128.0.{number}", f"10.128.0.{number}/32")
        routes = {f"10.128.0.{other}": held.address}
        return facts_of(number, addresses=(held,), reached_at=held.address, routes=routes)

    choice = choose({"a": cloud(1, 2), "b": cloud(2, 1)})
    assert choice.networks == ("10.128.0.0/31", "10.128.0.2/31")  # MPI would not find a /32
