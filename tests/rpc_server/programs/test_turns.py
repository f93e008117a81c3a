"""Whose turn it is, and who waits beside the lines."""

from rpc_server.program.scheduler import Ticket, Turns


def tickets(names):
    return [Ticket(None, name) for name in names.split()]


def order(turns):
    """What comes until nothing does."""
    return [ticket.call_id for ticket in iter(turns.next, None)]


def test_calls_take_turns():
    turns = Turns()
    for names in ("a1 a2 a3", "b1", "c1 c2"):
        turns.join(tickets(names))
    assert order(turns) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_what_must_run_again_comes_first_in_its_own_order():
    turns = Turns()
    first, second = tickets("again1 again2")
    turns.join(tickets("a1"))
    for ticket in (second, first):
        turns.again(ticket)
    assert order(turns) == ["again1", "again2", "a1"]


def test_what_was_given_up_is_passed_over():
    turns = Turns()
    line, again, alone = tickets("a1 a2"), *tickets("again alone")
    turns.join(line)
    turns.again(again)
    alone.alone = True
    turns.suspect(alone)
    for ticket in (line[0], again, alone):
        ticket.given_up = True
    turns.forget_given_up()
    assert not turns.any_alone
    assert order(turns) == ["a2"]


def test_suspects_wait_beside_the_lines():
    turns = Turns()
    alone, first, apart = tickets("alone first apart")
    alone.alone = first.alone = apart.alone = apart.apart = True
    turns.suspect(alone)
    turns.again(first)
    turns.suspect(apart)
    turns.join(tickets("a1"))
    assert turns.suspects == 3
    assert {ticket.call_id for ticket in turns.waiting()} == {"alone", "first", "apart", "a1"}
    assert order(turns) == ["a1"]
    assert [turns.next_alone(), turns.next_alone(), turns.next_apart()] == [first, alone, apart]
    assert not turns.any_alone
    assert not turns.any_apart
