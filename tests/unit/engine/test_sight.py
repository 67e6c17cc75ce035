from backburner.engine.maintenance.upkeep import Sight

LEASE = 10_000


def a_sight():
    return Sight(lease=LEASE)


def look(sight, now, *, took=5):
    """Look, and be answered; return which silence is too long."""
    sight.see(now - took, now)
    return sight.lease(now)


def test_a_store_that_answers_is_gone_by_at_once_however_seldom_it_is_asked():
    sight = a_sight()

    assert {LEASE} == {look(sight, now) for now in (1_000, 3_000, 90_000)}


def test_after_an_outage_everybody_has_a_whole_lease_to_be_heard_again():
    sight = a_sight()
    look(sight, 1_000)
    sight.miss()
    sight.miss()
    # Silent for 40 s when it can look again; dead if still silent 10 s later.
    leases = [look(sight, now) for now in (41_000, 44_000, 50_999, 51_000)]

    assert [40_000 + LEASE] * 3 + [LEASE] == leases


def test_an_answer_that_was_held_up_is_the_end_of_an_outage():
    sight = a_sight()
    look(sight, 1_000)

    assert 30_000 + LEASE == look(sight, 31_000, took=28_000)


def test_an_outage_right_after_another_is_part_of_it():
    sight = a_sight()
    look(sight, 1_000)
    sight.miss()
    look(sight, 20_000)
    sight.miss()

    assert 29_000 + LEASE == look(sight, 30_000)
    assert LEASE == look(sight, 40_000)


def test_a_short_failure_changes_nothing_however_often_it_comes():
    sight = a_sight()
    leases = []
    for now in range(1_000, 60_000, 4_000):
        leases.append(look(sight, now))
        sight.miss()

    assert {LEASE} == set(leases)
