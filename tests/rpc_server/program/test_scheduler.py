"""The order of waiting requests, and of those that must run alone."""

from rpc_server.program.scheduler import Scheduler, WorkItem


def items(names):
    return [WorkItem(None, name) for name in names.split()]


def order(scheduler):
    """Return all requests in order until the queue is empty."""
    return [item.call_id for item in iter(scheduler.next, None)]


def test_calls_take_turns():
    scheduler = Scheduler()
    for names in ("a1 a2 a3", "b1", "c1 c2"):
        scheduler.add(items(names))
    assert order(scheduler) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_retried_requests_come_first_in_their_order():
    scheduler = Scheduler()
    first, second = items("again1 again2")
    scheduler.add(items("a1"))
    for item in (second, first):
        scheduler.requeue(item)
    assert order(scheduler) == ["again1", "again2", "a1"]


def test_abandoned_requests_are_skipped():
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


def test_suspects_wait_outside_of_the_queues():
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
