"""Several processes at once, and kill -9 in the middle: one champion, nothing lost that was said to be done."""

import random
import time

from portfolio_sdpo.registry import Registry

PROMOTE = """
say("ready"); sys.stdin.readline()
names, reason, rounds = given
done = 0
for number in range(rounds):
    expected = registry.champion()
    choice = names[(number + len(reason)) % len(names)]
    try:
        before = None if expected is None else expected.model_id
        if choice != before:
            registry.promote(choice, f"{reason} {number}", expected_champion=before)
            done += 1
    except ChampionChangedError:
        pass
say(done)
"""
LOOP = """
names, tag = given
number = 0
while True:
    seq = registry.promote(names[number % len(names)], f"{tag} {number}").seq
    rows = registry.append_audit([AuditEntry(f"{tag}-{number}", {"CASH": 1.0}, "") for _ in range(5)])
    number += 1
    say(f"{seq} {rows[-1]}")
"""


def test_two_processes_promote(registry, url, ids, start):
    """Compare-and-swap from both sides: every success is in the log, each on top of the one before."""
    processes = [start(PROMOTE, url, ids, reason, 40) for reason in ("a", "bb")]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    done = [int(process.communicate(timeout=120)[0]) for process in processes]
    log = registry.promotions()
    assert len(log) == sum(done) > 0
    assert [entry.seq for entry in log] == list(range(len(log), 0, -1))
    assert all(new.previous == old.model_id != new.model_id for new, old in zip(log[:-1], log[1:], strict=True))
    for reason, number in zip(("a", "bb"), done, strict=True):
        assert sum(entry.reason.split()[0] == reason for entry in log) == number
    assert registry.verify_promotions().sound and registry.champion() == log[0]


def test_several_processes_write_the_audit(registry, url, start):
    script = """
for number in range(15):
    registry.append_audit([AuditEntry(f"{given[0]}-{number}-{k}", {"CASH": 1.0}, "") for k in range(4)])
"""
    processes = [start(script, url, str(number)) for number in range(3)]
    for process in processes:
        process.communicate(timeout=120)
        assert process.returncode == 0
    check = registry.verify_audit()
    assert check.sound and check.rows == 180
    rows = [row.entry.request_id for row in registry.audit(limit=200)]
    assert len(set(rows)) == 180
    # Those of one batch stand together.
    assert all(len({name.rpartition("-")[0] for name in rows[k : k + 4]}) == 1 for k in range(0, 180, 4))


def test_kill_in_the_middle(url, variant, start):
    """What was said to be written is there, nothing is half there, and the next one goes on."""
    with Registry.open(url) as registry:
        names = [registry.add_parts(variant(f"m{number}")).id for number in range(2)]
    rng = random.Random(0)
    for attempt in range(3):
        processes = [start(LOOP, url, names, f"{attempt}{side}") for side in "ab"]
        said = [process.stdout.readline() for process in processes]
        time.sleep(rng.uniform(0.0, 0.1))
        for process in processes:
            process.kill()
        for number, process in enumerate(processes):
            lines = process.communicate()[0].splitlines(keepends=True)
            said[number] = [said[number], *(line for line in lines if line.endswith("\n"))][-1]
        with Registry.open(url, timeout=20.0) as registry:
            champion, promotions, audit = registry.champion(), registry.verify_promotions(), registry.verify_audit()
            assert promotions.sound and audit.sound and audit.rows % 5 == 0
            assert promotions.rows >= max(int(line.split()[0]) for line in said)
            assert audit.rows >= max(int(line.split()[1]) for line in said)
            assert champion.seq == promotions.rows and champion.model_id in names
            assert registry.damaged_models() == {}
