"""Whose turn it is, and who waits beside the lines."""

from rpc_server.program.scheduler import Scheduler, WorkItem


def items(names):
    return [WorkItem(None, name) for name in names.split()]


def order(scheduler):
    """What comes until nothing does."""
    return [item.call_id for item in iter(scheduler.next, None)]


def test_calls_take_turns():
    scheduler = Scheduler()
    for names in ("a1 a2 a3", "b1", "c1 c2"):
        scheduler.add(items(names))
    assert order(scheduler) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_what_must_run_again_comes_first_in_its_own_order():
    scheduler = Scheduler()
    first, second = items("again1 again2")
    scheduler.add(items("a1"))
    for item in (second, first):
        scheduler.requeue(item)
    assert order(scheduler) == ["again1", "again2", "a1"]


def test_what_was_given_up_is_passed_over():
    scheduler = Scheduler()
    line, requeue, isolated = items("a1 a2"), *items("again alone")
    scheduler.add(line)
    scheduler.requeue(requeue)
    isolated.isolated = True
    scheduler.add_suspect(isolated)
    for item in (line[0], requeue, isolated):
        item.abandoned = True
    scheduler.drop_abandoned()
    assert not scheduler.any_isolated
    assert order(scheduler) == ["a2"]


def test_suspects_wait_beside_the_lines():
    scheduler = Scheduler()
    isolated, first, exclusive = items("alone first apart")
    isolated.isolated = first.isolated = exclusive.isolated = exclusive.exclusive = True
    scheduler.add_suspect(isolated)
    scheduler.requeue(first)
    scheduler.add_suspect(exclusive)
    scheduler.add(items("a1"))
    assert scheduler.suspects == 3
    assert {item.call_id for item in scheduler.waiting()} == {"alone", "first", "apart", "a1"}
    assert order(scheduler) == ["a1"]
    assert [scheduler.next_isolated(), scheduler.next_isolated(), scheduler.next_exclusive()] == [
        first,
        isolated,
        exclusive,
    ]
    assert not scheduler.any_isolated
    assert not scheduler.any_exclusive
