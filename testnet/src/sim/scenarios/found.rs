//! What the simulator found in this core.

use gpuvine::core::job::JobState;
use gpuvine::core::node::Input;
use gpuvine::core::task::Outcome;
use gpuvine::core::time::Duration;

use super::Scenario;
use super::story::{Story, all_see_all, has_ended, is_well, node, runs, secs, sees, state, waits};
use crate::sim::machine::Opening;
use crate::sim::options::Fault;
use crate::sim::sabotage::Sabotage;
use crate::sim::streams::First;
use crate::sim::world::World;

pub(super) const ALL: &[Scenario] = &[
    Scenario { name: "a founder that was cut off is found again", play: founder_cut_off },
    Scenario { name: "two that took each other for dead meet again", play: two_dead },
    Scenario { name: "halves that were restarted while split meet again", play: restarted_halves },
    Scenario { name: "a restarted controller that others follow reigns", play: ghost_reign },
    Scenario { name: "a node with an old disk is alive for all", play: old_disk },
    Scenario { name: "an attempt that is not on disk is not made again", play: lost_attempt },
    Scenario { name: "a lost withdrawal does not stay in the queue", play: lost_withdrawal },
    Scenario { name: "an impossible job is told so while a link is lost", play: impossible_lost },
    Scenario { name: "a lost claim is learnt of later", play: lost_claim },
    Scenario { name: "a place of the other half's reign is kept", play: same_term },
    Scenario { name: "a machine whose copy was there in its place is itself", play: in_its_place },
    Scenario { name: "a stream that comes late gives way to a later offer", play: late_stream },
    Scenario { name: "a job whose outcome was given up is not run again", play: given_up },
    Scenario { name: "a request is kept although its reason changes", play: busy_news },
];

fn founder_cut_off() -> World {
    let mut story = Story::of(&[1, 1, 1, 1]);
    // The others know where it was; it has nobody to ask on its own disk.
    story.world.machines[0].disk.image.peers.clear();
    story.world.isolate(0);
    story.until("all are dead to it", |world| sees(world, 0) == 0);
    story.until("it is dead to all", |world| (1..4).all(|at| sees(world, at) == 2));
    story.pass(secs(60));
    story.world.heal();
    story.until("it is back", all_see_all);
    story.ends_well()
}

fn two_dead() -> World {
    let mut story = Story::of(&[1, 1]);
    for _ in 0..4 {
        story.world.isolate(0);
        story.until("each is alone", |world| sees(world, 0) == 0 && sees(world, 1) == 0);
        story.world.heal();
        story.until("they meet", all_see_all);
    }
    story.ends_well()
}

fn restarted_halves() -> World {
    let mut story = Story::of(&[1, 1, 1, 1, 1]);
    story.world.split(&[0, 1]);
    story.until("the halves are apart", |world| sees(world, 0) == 1 && sees(world, 4) == 2);
    // A directory does not outlive its daemon: nobody remembers the other half as dead.
    for machine in 0..5 {
        story.world.kill(machine);
    }
    story.pass(secs(1));
    for machine in 0..5 {
        story.world.start(machine);
    }
    story.until("each half is whole", |world| sees(world, 0) == 1 && sees(world, 4) == 2);
    story.world.heal();
    story.until("they meet", all_see_all);
    story.ends_well()
}

fn ghost_reign() -> World {
    let mut story = Story::of(&[1, 1, 1, 1]);
    for _ in 0..5 {
        let Some(old) = story.controller(0) else { break };
        story.world.kill(old);
        // So soon that nobody takes it for dead.
        story.pass(Duration::from_millis(20));
        story.world.start(old);
        story.until("somebody reigns and knows it", is_well);
    }
    story.ends_well()
}

fn old_disk() -> World {
    let mut story = Story::of(&[1, 1, 1]);
    let image = story.world.machines[2].disk.image.clone();
    for _ in 0..4 {
        story.world.kill(2);
        story.world.start(2);
        story.until("it is seen", is_well);
    }
    story.world.power_off(2);
    story.pass(secs(1));
    story.world.machines[2].old_disk = Some(image);
    story.world.start(2);
    story.until("it is alive for all", all_see_all);
    story.expect("its number is a new one", |world| {
        node(world, 2).is_some_and(|node| node.report().incarnation.0 > 5)
    });
    story.ends_well()
}

fn lost_attempt() -> World {
    let mut story = Story::of(&[1, 1, 0]);
    story.world.starts_fail = true;
    let job = story.run(2, 1, secs(2));
    story.until("an attempt was refused, and is on disk", |world| {
        let on_disk = world.machines[2].disk.image.jobs.get(&job);
        on_disk.is_some_and(|record| matches!(record.state, JobState::Starting { .. }))
    });
    let before = story.world.machines[2].disk.clone();
    story.world.starts_fail = false;
    story.until("a later one runs", |world| runs(world, 2, job));
    // Nothing that was written since survives.
    story.world.power_off(2);
    story.world.machines[2].disk = before;
    story.world.start(2);
    story.until("its user is told that it is lost", |world| {
        let lost = |state: &JobState| {
            matches!(state, JobState::Ended { outcome: Outcome::Lost { .. }, .. })
        };
        state(world, 2, job).is_none_or(lost)
    });
    story.ends_well()
}

fn lost_withdrawal() -> World {
    let mut story = Story::of(&[1, 0, 0]);
    let holder = story.run(1, 1, secs(20));
    story.until("the GPU is taken", |world| runs(world, 1, holder));
    let job = story.run(2, 1, secs(1));
    story.until("it waits", |world| waits(world, 2, job));
    story.world.network.lossy = 1.0;
    story.cancel(2, job, false);
    story.world.network.lossy = 0.0;
    story.pass(secs(1));
    story.expect("the controller does not know", |world| {
        (0..3).any(|at| node(world, at).is_some_and(|node| node.controller().waiting() > 0))
    });
    story.ends_well()
}

fn impossible_lost() -> World {
    let mut story = Story::of(&[1, 1, 2]);
    let Some(controller) = story.controller(0) else { return story.world };
    let lost = story.world.machines[2].id;
    story.input(controller, Input::Unlinked(lost));
    let asker = (controller + 1) % 2;
    let (never, later) = (story.run(asker, 9, secs(1)), story.run(asker, 2, secs(1)));
    story.pass(Duration::from_millis(100));
    story.expect("what can never be is told", |world| {
        matches!(state(world, asker, never), Some(JobState::Rejected { .. }))
    });
    story.expect("what may be is waited for", |world| waits(world, asker, later));
    let link = story.world.network.link(controller, 2);
    if let Some(link) = link {
        story.world.reset(link, None);
    }
    story.until("it has run", |world| has_ended(world, asker, later));
    story.ends_well()
}

fn lost_claim() -> World {
    let mut story = Story::of(&[1; 6]);
    let Some(old) = story.controller(0) else { return story.world };
    story.world.network.gossip_loss = 1.0;
    story.world.network.lossy = 1.0;
    story.world.kill(old);
    let claims = |world: &World| {
        (0..6).any(|at| node(world, at).is_some_and(|node| node.election().is_controller()))
    };
    story.until("somebody claims, unheard", claims);
    story.world.network.lossy = 0.0;
    story.until("all follow", |world| {
        let reigns: Vec<_> =
            (0..6).filter_map(|at| node(world, at)).map(|node| node.election().reign()).collect();
        reigns.len() == 5 && reigns.windows(2).all(|two| two[0] == two[1])
    });
    story.ends_well()
}

fn same_term() -> World {
    let mut story = Story::of(&[1, 0, 0, 1, 0, 0]);
    for home in [1, 4] {
        let job = story.run(home, 1, secs(100));
        story.until("a GPU is taken", |world| runs(world, home, job));
    }
    story.world.split(&[0, 1, 2]);
    story.until("each half has a controller", |world| {
        let reign = |at: usize| node(world, at).and_then(|node| node.election().reign());
        sees(world, 0) == 2 && sees(world, 3) == 2 && reign(0) != reign(3)
    });
    for _ in 0..3 {
        story.run(2, 1, secs(1));
        story.run(5, 1, secs(1));
        story.pass(Duration::from_millis(50));
    }
    story.pass(secs(5));
    story.world.heal();
    story.until("they meet", all_see_all);
    story.ends_well()
}

fn in_its_place() -> World {
    let mut story = Story::of(&[1, 1, 1]);
    let Some(copy) = story.world.copy(1) else { return story.world };
    story.world.kill(1);
    story.world.start(copy);
    let shows = |world: &World, machine: usize| {
        let id = world.machines[1].id;
        let report = node(world, 0).and_then(|node| Some(node.directory().get(id)?.report()));
        report.is_some_and(|report| report.gpu(&world.machines[machine].gpus[0].uuid).is_some())
    };
    story.until("the copy is taken for it", |world| shows(world, copy));
    story.pass(secs(10));
    story.world.remove(copy);
    story.pass(secs(30));
    // With the very number that its copy had, and as much to say.
    story.world.start(1);
    story.until("it is seen as it is", |world| shows(world, 1));
    story.ends_well()
}

/// The streams that the second machine is opening.
fn opening(world: &World) -> impl Iterator<Item = &Opening> {
    world.machines[1].memory.openings.iter()
}

/// Not found here, but with daemons, whose homes held one stream when the simulator's held many.
fn late_stream() -> World {
    late_stream_with(None)
}

fn late_stream_with(sabotage: Option<Sabotage>) -> World {
    let mut story = Story::of(&[1, 0]);
    story.world.sabotage = sabotage;
    let job = story.run(1, 1, secs(1));
    story.until_the_moment("it is offered", |world| !world.streams.is_empty());
    for link in story.world.network.of(1) {
        story.world.reset(link, None);
    }
    story.until_the_moment("its home comes back", |world| opening(world).count() == 1);
    let node = story.world.machines[0].id;
    story.input(1, Input::Linked(node));
    story.expect("it comes back twice", |world| opening(world).count() == 2);
    let Some(late) = story.world.machines[1].memory.openings.pop() else { return story.world };
    let offered = |world: &World| {
        let again = opening(world).find(|opening| matches!(opening.first, First::Open(_)));
        again.map(|opening| opening.number)
    };
    story.until_the_moment("it is offered again", |world| offered(world).is_some());
    let Some(again) = offered(&story.world) else { return story.world };
    let number = late.number;
    story.world.machines[1].memory.openings.push(late);
    story.world.on_opened(1, number);
    story.world.on_opened(1, again);
    story.until("it has run", |world| has_ended(world, 1, job));
    story.ends_well()
}

fn given_up() -> World {
    let mut story = Story::of(&[4, 0, 0]);
    story.world.options.faults.0.insert(Fault::Prune);
    for _ in 0..3 {
        let job = story.run(1, 1, secs(3));
        story.until("it runs", |world| runs(world, 1, job));
    }
    let job = story.run(1, 1, Duration::from_millis(10));
    story.until_the_moment("the last one starts", |world| world.machines[0].processes.len() == 4);
    // Its home does not hear that it was accepted, nor how all of them end.
    story.world.isolate(1);
    story.until("its outcome is given up", |world| world.machines[0].endings.len() == 2);
    story.pass(secs(30));
    story.world.heal();
    story.until("its user is told that it is lost", |world| {
        let state = state(world, 1, job);
        matches!(state, Some(JobState::Ended { outcome: Outcome::Lost { .. }, .. }))
    });
    story.ends_well()
}

fn busy_news() -> World {
    let mut story = Story::of(&[1, 0]);
    let job = story.run(1, 1, secs(2));
    story.until("it runs", |world| runs(world, 1, job));
    for _ in 0..60 {
        story.run(1, 1, secs(2));
    }
    // News every two seconds, for two minutes: none of them is dropped and loses its place.
    for left in (0..60).rev() {
        story.until("the next has its turn", |world| {
            let waiting = node(world, 0).map_or(0, |node| node.controller().waiting())
                + node(world, 1).map_or(0, |node| node.controller().waiting());
            waiting == left
        });
    }
    story.ends_well()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A home that keeps the late stream waits for ever, as the daemon's did.
    #[test]
    fn a_home_that_keeps_its_stream_is_seen() {
        let world = late_stream_with(Some(Sabotage::KeepStreams));
        assert_eq!(world.violation().map(|broken| broken.rule), Some("the_story_goes_on"));
    }
}
