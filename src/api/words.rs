//! Reasons in words: one sentence for each, the same wherever a user reads it.

use crate::core::election::Why;
use crate::core::grant::Refusal;
use crate::core::id::NodeId;
use crate::core::job::Rejection;
use crate::core::request::{Best, Need, WaitReason};
use crate::core::task::Outcome;

const GIB: u64 = 1 << 30;

/// Nodes named in one sentence.
const NAMED_MAX: usize = 5;

/// What is needed: `2 GPUs of model a100 with 40 GiB`.
pub fn need(need: &Need) -> String {
    let mut words = count(need.gpus, "GPU");
    if let Some(model) = &need.model {
        words.push_str(&format!(" of model {model}"));
    }
    if let Some(bytes) = need.memory_bytes {
        words.push_str(&format!(" with {}", gib(bytes)));
    }
    words
}

/// Why a job waits.
pub fn waiting(
    reason: &WaitReason,
    wanted: &Need,
    refusals: &[(String, String)],
    name: impl Fn(NodeId) -> String,
) -> String {
    let refused = !refusals.is_empty();
    let queue = |ahead: u32| match ahead {
        0 => String::new(),
        ahead => format!(", {} before this one", count(ahead, "request")),
    };
    let waits = match reason {
        WaitReason::Behind { ahead } => {
            format!("GPUs are free, but {} first", count(*ahead, "earlier request comes"))
        }
        WaitReason::Busy { matching: 0, ahead, .. } if refused => {
            format!("no other living node has {}{}", need(wanted), queue(*ahead))
        }
        WaitReason::Busy { matching: 0, ahead, .. } => {
            format!("no living node has {}{}", need(wanted), queue(*ahead))
        }
        WaitReason::Busy { matching, free, ahead } => {
            format!("{free} of {} free{}", count(*matching, "matching GPU"), queue(*ahead))
        }
        WaitReason::Full => "the queue is full; it is asked again from time to time".into(),
        WaitReason::NoController => "no controller has answered yet".into(),
        WaitReason::Starting { node } => format!("{} is being asked", name(*node)),
    };
    let told =
        refusals.iter().take(NAMED_MAX).map(|(node, why)| format!("{node} refused: {why}; "));
    told.collect::<String>() + &waits
}

/// Why a node does not take a job; `directory` is where the job wants to run.
pub fn refusal(refusal: &Refusal, directory: &str) -> String {
    match refusal {
        Refusal::CannotStart { why, .. } => why.clone(),
        Refusal::MayNotSubmit => "the submitter may not submit".into(),
        Refusal::NoDirectory => format!("it has no directory {directory}"),
        Refusal::NotServing => "it takes no tasks now".into(),
        Refusal::Taken { .. } => "the GPU was taken a moment before".into(),
        Refusal::TooManyTasks { limit } => format!("it runs {limit} tasks, as many as it may"),
        Refusal::UnknownGpu { .. } => "the GPU is not there any more".into(),
        Refusal::Unusable { why, .. } => format!("the GPU cannot be used: {why}"),
        Refusal::NotController
        | Refusal::OldAttempt { .. }
        | Refusal::OldTerm { .. }
        | Refusal::OtherHome
        | Refusal::OtherIncarnation
        | Refusal::OtherNode => "the grant was out of date".into(),
    }
}

/// Names in a sentence, of many only the first.
pub fn list(names: &[String]) -> String {
    let shown = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Why a job never ran.
pub fn rejection(
    why: &Rejection,
    wanted: &Need,
    directory: &str,
    name: impl Fn(NodeId) -> String,
) -> String {
    match why {
        Rejection::Cancelled => "cancelled before it ran".into(),
        Rejection::Infeasible { best } => infeasible(best, wanted),
        Rejection::NoDirectory { nodes } => {
            let names: Vec<String> = nodes.iter().map(|node| name(*node)).collect();
            format!(
                "there is no directory {directory} on {}: -D names a directory of the node, and no \
                 other node has {}",
                list(&names),
                need(wanted)
            )
        }
        Rejection::Refused { why } => why.clone(),
    }
}

/// That no node could ever fill a need, with the nearest that exists.
fn infeasible(best: &Best, wanted: &Need) -> String {
    let start = format!("no node of the mesh has {}", need(wanted));
    match &best.node {
        Some(node) => format!("{start}; {node} comes closest with {}", best.gpus),
        None if best.models.is_empty() => format!("{start}: no node has any GPU"),
        None => format!(
            "{start}; there are: {} (up to {} on one node, up to {} of memory)",
            best.models.join(", "),
            best.gpus_any,
            gib(best.memory_bytes_max)
        ),
    }
}

/// How a task ended.
pub fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Exited { code } => format!("exit code {code}"),
        Outcome::Signaled { signal } => format!("killed by signal {signal}"),
        Outcome::Failed { why } => why.clone(),
        Outcome::Lost { why } => format!("lost: {why}"),
    }
}

/// Why a controller was chosen.
pub fn why(why: &Why, name: impl Fn(NodeId) -> String) -> String {
    match why {
        Why::Alone => "there was no other node".into(),
        Why::Dead { before } => format!("{} died", name(*before)),
        Why::Restarted => "it was controller before it was restarted".into(),
        Why::Left { before } => format!("{} left", name(*before)),
        Why::NoController => "there was no controller, and it was the best placed".into(),
        Why::Unreachable { before, standbys } => {
            format!("{} could not be reached by {}", name(*before), count(*standbys, "standby"))
        }
    }
}

/// Bytes of memory.
pub fn gib(bytes: u64) -> String {
    match bytes % GIB {
        0 => format!("{} GiB", bytes / GIB),
        _ => format!("{:.1} GiB", bytes as f64 / GIB as f64),
    }
}

/// `1 GPU`, `2 GPUs`.
fn count(number: u32, thing: &str) -> String {
    match (number, thing) {
        (1, "earlier request comes") => "one earlier request comes".into(),
        (number, "earlier request comes") => format!("{number} earlier requests come"),
        (1, thing) => format!("1 {thing}"),
        (number, "standby") => format!("{number} standbys"),
        (number, thing) => format!("{number} {thing}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_is_named_when_nothing_fits() {
        let wanted = Need { gpus: 4, model: Some("h200".into()), ..Need::default() };
        let best = Best { node: Some("b7".into()), gpus: 3, ..Best::default() };
        let words = rejection(&Rejection::Infeasible { best }, &wanted, "", |_| String::new());
        assert_eq!(words, "no node of the mesh has 4 GPUs of model h200; b7 comes closest with 3");
        let none = Rejection::Infeasible { best: Best::default() };
        let words = rejection(&none, &wanted, "", |_| String::new());
        assert_eq!(words, "no node of the mesh has 4 GPUs of model h200: no node has any GPU");
    }

    #[test]
    fn a_waiting_job_says_for_what() {
        let wanted = Need { gpus: 1, memory_bytes: Some(40 << 30), ..Need::default() };
        let name = |_| "alpha".to_owned();
        let busy = WaitReason::Busy { matching: 3, free: 1, ahead: 2 };
        assert_eq!(
            waiting(&busy, &wanted, &[], name),
            "1 of 3 matching GPUs free, 2 requests before this one"
        );
        let gone = WaitReason::Busy { matching: 0, free: 0, ahead: 0 };
        assert_eq!(waiting(&gone, &wanted, &[], name), "no living node has 1 GPU with 40 GiB");
        assert_eq!(
            waiting(&WaitReason::Behind { ahead: 1 }, &wanted, &[], name),
            "GPUs are free, but one earlier request comes first"
        );
    }
    #[test]
    fn a_directory_that_is_nowhere_is_named_with_the_nodes() {
        let wanted = Need { gpus: 1, ..Need::default() };
        let mut nodes = vec![crate::core::report::testing::node(1)];
        let words =
            rejection(&Rejection::NoDirectory { nodes: nodes.clone() }, &wanted, "/typo", |_| {
                "alpha".into()
            });
        assert_eq!(
            words,
            "there is no directory /typo on alpha: -D names a directory of the node, and no other \
             node has 1 GPU"
        );
        nodes = vec![nodes[0]; 7];
        let words = rejection(&Rejection::NoDirectory { nodes }, &wanted, "/typo", |_| "a".into());
        assert!(words.contains("on a, a, a, a, a and 2 more:"), "{words}");
        let refusals = [("alpha".to_owned(), refusal(&Refusal::NoDirectory, "/typo"))];
        let gone = WaitReason::Busy { matching: 0, free: 0, ahead: 0 };
        assert_eq!(
            waiting(&gone, &wanted, &refusals, |_| String::new()),
            "alpha refused: it has no directory /typo; no other living node has 1 GPU"
        );
    }
}
