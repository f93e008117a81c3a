"""Whose turn it is, and who waits beside the lines."""

from rpc_server.program.scheduler import Scheduler, WorkItem


def items(names):
    return [WorkItem(None, name) for name in names.split()]


def ensure_starting(turns):
    """What comes until nothing does."""
    return [item.call_id for item in iter(turns.next, None)]


def test_calls_take_turns():
    turns = Scheduler()
    for names in ("a1 a2 a3", "b1", "c1 c2"):
        turns.join(items(names))
    assert ensure_starting(turns) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_what_must_run_again_comes_first_in_its_own_order():
    turns = Scheduler()
    first, second = items("again1 again2")
    turns.join(items("a1"))
    for item in (second, first):
        turns.requeue(item)
    assert ensure_starting(turns) == ["again1", "again2", "a1"]


def test_what_was_given_up_is_passed_over():
    turns = Scheduler()
    line, requeue, isolated = items("a1 a2"), *items("again alone")
    turns.join(line)
    turns.requeue(requeue)
    isolated.isolated = True
    turns.add_suspect(isolated)
    for item in (line[0], requeue, isolated):
        item.abandoned = True
    turns.drop_abandoned()
    assert not turns.any_isolated
    assert ensure_starting(turns) == ["a2"]


def test_suspects_wait_beside_the_lines():
    turns = Scheduler()
    isolated, first, exclusive = items("alone first apart")
    isolated.isolated = first.isolated = exclusive.isolated = exclusive.exclusive = True
    turns.add_suspect(isolated)
    turns.requeue(first)
    turns.add_suspect(exclusive)
    turns.join(items("a1"))
    assert turns.suspects == 3
    assert {item.call_id for item in turns.waiting()} == {"alone", "first", "apart", "a1"}
    assert ensure_starting(turns) == ["a1"]
    assert [turns.next_isolated(), turns.next_isolated(), turns.next_exclusive()] == [first, isolated, exclusive]
    assert not turns.any_isolated
    assert not turns.any_exclusive
