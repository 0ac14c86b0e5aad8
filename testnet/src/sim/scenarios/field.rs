//! What users of other systems met, and what has to happen here.

use gpuvine::core::job::{JobState, Rejection};
use gpuvine::core::report::GpuHealth;
use gpuvine::core::time::Duration;

use super::Scenario;
use super::story::{
    Story, all_see_all, has_ended, is_well, need, node, runs, secs, sees, state, waits,
};
use crate::sim::machine::Temper;
use crate::sim::world::World;

pub(super) const ALL: &[Scenario] = &[
    Scenario { name: "a lost GPU leaves the others of its node usable", play: one_gpu_lost },
    Scenario { name: "a leased GPU that breaks is counted once", play: leased_gpu_breaks },
    Scenario { name: "a node restarted five times is the same node", play: five_restarts },
    Scenario { name: "a node that left can come back", play: leave_and_return },
    Scenario { name: "a slow node makes no good node look dead", play: slow_node },
    Scenario { name: "a request of an old reign frees what it asked for", play: stale_request },
    Scenario { name: "a controller that wakes after 90 s kills nothing", play: stalled_controller },
    Scenario { name: "ten controllers in a row are replaced", play: ten_takeovers },
    Scenario { name: "a start whose answer is lost happens once", play: lost_answer },
    Scenario { name: "a refused start frees its GPU", play: refused_start },
    Scenario { name: "a task stopped while its node was away ends on return", play: stop_offline },
    Scenario { name: "a big job is not starved by small ones", play: big_job },
    Scenario { name: "an impossible job is told so at once", play: impossible },
    Scenario { name: "one job on an idle mesh starts at once", play: idle_mesh },
    Scenario { name: "cancel in every state leaves nothing", play: cancel_everywhere },
    Scenario { name: "a flapping member forces no election", play: flapping_member },
    Scenario { name: "a submitter that vanishes leaves nothing behind", play: vanished_home },
    Scenario { name: "a machine that is copied is well without its copy", play: copied },
    Scenario { name: "a killed submitter finds its job again", play: killed_home },
    Scenario { name: "a GPU held by what SIGKILL does not end is not given out", play: stuck },
];

fn one_gpu_lost() -> World {
    let mut story = Story::of(&[0, 4]);
    let lost = story.world.machines[1].gpus[3].uuid.clone();
    story.world.machines[1].gone_gpus.insert(lost.clone());
    story.world.look(1);
    let job = story.run(0, 3, secs(60));
    story.until("three GPUs are given", |world| runs(world, 0, job));
    story.expect("the fourth is shown as broken", |world| {
        let report = node(world, 1).map(|node| node.report().clone());
        report
            .and_then(|report| report.gpu(&lost).map(|gpu| gpu.health.clone()))
            .is_some_and(|health| matches!(health, GpuHealth::Broken(_)))
    });
    story.ends_well()
}

fn leased_gpu_breaks() -> World {
    let mut story = Story::of(&[1, 1]);
    let job = story.run(0, 1, secs(30));
    story.until("it runs", |world| runs(world, 0, job));
    for machine in 0..2 {
        let gpus = story.world.machines[machine].gpus.clone();
        story.world.machines[machine].gone_gpus.extend(gpus.into_iter().map(|gpu| gpu.uuid));
        story.world.look(machine);
    }
    let next = story.run(1, 1, secs(1));
    story.until("the next waits", |world| waits(world, 1, next));
    story.until("the first ends", |world| has_ended(world, 0, job));
    story.expect("the next still waits", |world| waits(world, 1, next));
    story.ends_well()
}

fn five_restarts() -> World {
    let mut story = Story::of(&[1, 1, 1]);
    for _ in 0..5 {
        story.world.kill(2);
        story.pass(secs(1));
        story.world.start(2);
        story.until("it is seen again", is_well);
    }
    story.expect("three nodes are known, the third in its sixth start", |world| {
        node(world, 0).is_some_and(|seen| {
            let third = seen.directory().get(world.machines[2].id);
            seen.directory().len() == 3
                && third.is_some_and(|entry| entry.report().incarnation.0 >= 6)
        })
    });
    story.ends_well()
}

fn leave_and_return() -> World {
    let mut story = Story::of(&[1, 1, 1]);
    story.world.leave(1);
    story.until("it is gone", |world| sees(world, 0) == 1 && sees(world, 2) == 1);
    story.pass(secs(30));
    story.world.start(1);
    story.until("it is back", is_well);
    story.ends_well()
}

fn slow_node() -> World {
    let mut story = Story::of(&[1; 6]);
    for _ in 0..5 {
        story.world.freeze(5, false);
        for _ in 0..20 {
            story.pass(Duration::from_millis(100));
            for good in 0..5 {
                story.expect("the good ones see each other", |world| sees(world, good) >= 4);
            }
        }
        story.world.thaw(5);
        story.pass(secs(3));
    }
    story.ends_well()
}

fn stale_request() -> World {
    let mut story = Story::of(&[1, 1, 0]);
    let (one, two) = (story.run(2, 1, secs(5)), story.run(2, 1, secs(5)));
    story.until("both GPUs are taken", |world| runs(world, 2, one) && runs(world, 2, two));
    let waiting = story.run(2, 1, secs(1));
    story.until("the third waits", |world| waits(world, 2, waiting));
    story.world.kill(0);
    story.world.power_off(2);
    story.until("another reigns", |world| {
        node(world, 1).is_some_and(|node| node.election().is_controller())
    });
    story.ends_well()
}

fn stalled_controller() -> World {
    let mut story = Story::of(&[1, 2, 1]);
    let job = story.run(2, 2, secs(150));
    story.until("it runs", |world| runs(world, 2, job));
    let Some(old) = story.controller(2) else { return story.world };
    story.world.freeze(old, false);
    story.until("another reigns", |world| {
        node(world, 2)
            .and_then(|node| node.election().reign())
            .is_some_and(|reign| reign.controller != world.machines[old].id)
    });
    story.pass(secs(90));
    story.world.thaw(old);
    story.pass(secs(10));
    story.expect("it still runs", |world| runs(world, 2, job));
    story.ends_well()
}

fn ten_takeovers() -> World {
    let mut story = Story::of(&[1, 1, 1, 1]);
    for _ in 0..10 {
        let Some(old) = story.controller(0).or_else(|| story.controller(1)) else { break };
        story.world.kill(old);
        let asker = (old + 1) % 4;
        let job = story.run(asker, 1, Duration::from_millis(100));
        story.until("work is done again", |world| has_ended(world, asker, job));
        story.world.start(old);
        story.until("all is well", is_well);
    }
    story.ends_well()
}

fn lost_answer() -> World {
    let mut story = Story::of(&[0, 1]);
    let job = story.run(0, 1, secs(5));
    story.until("it is leased", |world| {
        node(world, 1).is_some_and(|node| node.ledger().tasks() == 1)
    });
    for link in story.world.network.of(1) {
        story.world.reset(link, None);
    }
    story.until("its home has found it again", |world| runs(world, 0, job));
    story.until("it ends", |world| has_ended(world, 0, job));
    story.ends_well()
}

fn refused_start() -> World {
    let mut story = Story::of(&[0, 1]);
    // Nothing can be started until its machine is up again.
    story.world.starts_fail = true;
    let job = story.run(0, 1, secs(1));
    story.pass(secs(5));
    story.expect("it has not run", |world| !has_ended(world, 0, job));
    story.world.starts_fail = false;
    story.until("it has run", |world| has_ended(world, 0, job));
    story.ends_well()
}

fn vanished_home() -> World {
    let mut story = Story::of(&[1, 0, 0]);
    let job = story.run(1, 1, secs(30));
    story.until("it runs", |world| runs(world, 1, job));
    story.run(1, 1, secs(30));
    let next = story.run(2, 1, secs(1));
    story.until("two wait", |world| node(world, 0).is_some_and(|n| n.controller().waiting() == 2));
    story.world.remove(1);
    story.pass(secs(15));
    story.expect("its task runs on", |world| world.machines[0].processes.len() == 1);
    // What waits for nobody does not hold up what waits behind it.
    story.until("the next runs", |world| has_ended(world, 2, next));
    story.expect("the vanished one's is not run", |world| world.machines[0].endings.len() == 2);
    story.ends_well()
}

fn copied() -> World {
    let mut story = Story::of(&[1, 1, 1]);
    let job = story.run(1, 1, secs(40));
    story.until("it runs", |world| runs(world, 1, job));
    let copy = story.world.copy(1);
    story.expect("there is a copy", |_| copy.is_some());
    let Some(copy) = copy else { return story.world };
    story.world.start(copy);
    for _ in 0..5 {
        story.pass(secs(3));
        story.run(0, 1, secs(1));
        story.run(2, 1, secs(1));
    }
    story.world.remove(copy);
    story.until("it has ended once", |world| has_ended(world, 1, job));
    story.ends_well()
}

fn stop_offline() -> World {
    let mut story = Story::of(&[0, 1, 0]);
    let job = story.run(0, 1, secs(3_000));
    story.until("it runs", |world| runs(world, 0, job));
    story.world.isolate(1);
    story.pass(secs(20));
    story.cancel(0, job, false);
    story.pass(secs(20));
    story.expect("nobody could end it", |world| !world.machines[1].processes.is_empty());
    story.world.heal();
    story.until("it ends", |world| has_ended(world, 0, job));
    story.ends_well()
}

fn big_job() -> World {
    let mut story = Story::of(&[4, 0]);
    for _ in 0..4 {
        story.run(1, 1, secs(2));
    }
    let big = story.run(1, 4, secs(1));
    for _ in 0..40 {
        story.run(0, 1, secs(2));
        story.pass(Duration::from_millis(200));
    }
    story.expect("it had its turn", |world| has_ended(world, 1, big));
    story.ends_well()
}

fn impossible() -> World {
    let mut story = Story::of(&[2, 1, 0]);
    let job = story.run(2, 999, secs(1));
    story.pass(Duration::from_millis(100));
    story.expect("its user knows, and what there is", |world| {
        let Some(JobState::Rejected { why, .. }) = state(world, 2, job) else { return false };
        matches!(why, Rejection::Infeasible { best } if best.gpus == 2)
    });
    story.ends_well()
}

fn idle_mesh() -> World {
    let mut story = Story::of(&[1, 1, 0]);
    let job = story.run(2, 1, secs(10));
    story.pass(Duration::from_millis(200));
    story.expect("it runs", |world| runs(world, 2, job));
    story.ends_well()
}

fn cancel_everywhere() -> World {
    let mut story = Story::of(&[0, 1]);
    let tempers = [
        Temper { runs: secs(100), ..Temper::default() },
        Temper { runs: secs(100), ignores_term: true, lingers: secs(3), ..Temper::default() },
    ];
    // From before it is granted to long after it runs, in steps of a fraction of each stage.
    for step in 0..60 {
        for temper in tempers {
            let job = story.submit(0, need(1), temper);
            story.pass(Duration::from_micros(step * 400));
            story.cancel(0, job, false);
            story.pass(secs(15));
            story.expect("nothing is left", |world| {
                let ended = state(world, 0, job).is_some_and(JobState::is_ended);
                let leases = node(world, 1).map_or(9, |node| node.ledger().tasks());
                ended && world.machines[1].processes.is_empty() && leases == 0
            });
        }
    }
    story.ends_well()
}

fn flapping_member() -> World {
    let mut story = Story::of(&[1, 1, 1, 1]);
    let job = story.run(1, 1, secs(100));
    story.until("it runs", |world| runs(world, 1, job));
    let before = node(&story.world, 0).map(|node| node.election().term());
    for _ in 0..10 {
        story.world.kill(3);
        story.pass(secs(1));
        story.world.start(3);
        story.pass(secs(2));
    }
    story.until("all see all", all_see_all);
    story.expect("the term is the same", |world| {
        node(world, 0).map(|node| node.election().term()) == before
    });
    story.expect("the task is untouched", |world| runs(world, 1, job));
    story.ends_well()
}

fn killed_home() -> World {
    let mut story = Story::of(&[1, 1, 0]);
    let job = story.run(2, 1, secs(60));
    story.until("it runs", |world| runs(world, 2, job));
    story.pass(secs(1));
    story.world.kill(2);
    story.pass(secs(10));
    story.world.start(2);
    story.until("it is found again", |world| runs(world, 2, job));
    story.until("its end is known", |world| has_ended(world, 2, job));
    story.ends_well()
}

fn stuck() -> World {
    let mut story = Story::of(&[0, 2]);
    let unkillable = secs(120);
    let temper = Temper { runs: secs(500), unkillable, ignores_term: true, ..Temper::default() };
    let job = story.submit(0, need(1), temper);
    story.until("it runs", |world| runs(world, 0, job));
    story.cancel(0, job, true);
    story.pass(secs(20));
    let (one, two) = (story.run(0, 1, secs(30)), story.run(0, 1, secs(1)));
    story.until("the other GPU is given", |world| runs(world, 0, one));
    story.expect("this one is not", |world| waits(world, 0, two));
    story.until("all end", |world| [job, one, two].iter().all(|job| has_ended(world, 0, *job)));
    story.ends_well()
}
