//! A home between its orders and the streams to nodes.

use super::*;
use crate::core::control::OrderKey;
use crate::core::id::{Attempt, Incarnation, JobId, Term};
use crate::core::signed::Key;
use crate::daemon::stream::pipe;

fn task(attempt: u64) -> TaskId {
    TaskId { job: JobId::from_bits(7), attempt: Attempt(attempt) }
}

/// After a network has healed a job may be attached to twice and sent elsewhere between the
/// answers. The late stream was taken for the one that counts, and the new one thrown away.
#[tokio::test]
async fn a_stream_that_comes_late_does_not_stand_in_the_way_of_a_new_attempt() {
    let (orders, receiver) = mpsc::channel(ORDERS_MAX);
    let (inbox, _requests) = Inbox::new();
    let home = tokio::spawn(run(None, receiver, inbox));
    let (near, far) = pipe();
    let attach = Order::Connected { task: task(1), stream: near, first: First::Attach };
    orders.send(attach).await.unwrap();
    let (mut late, _late) = split(far);
    let Frame::Control(ToNode::Attach { .. }) = late.next().await.unwrap() else { panic!() };
    // Nobody has answered that yet.
    let (near, far) = pipe();
    let first = First::Open(Box::new(offer()));
    orders.send(Order::Connected { task: task(2), stream: near, first }).await.unwrap();
    let (mut new, _new) = split(far);
    let Frame::Control(ToNode::Open { .. }) = new.next().await.unwrap() else { panic!() };
    // One more for the first attempt is of no interest, and takes nothing away.
    let (near, far) = pipe();
    let attach = Order::Connected { task: task(1), stream: near, first: First::Attach };
    orders.send(attach).await.unwrap();
    let (mut later, _later) = split(far);
    assert!(later.next::<ToNode>().await.is_err());
    orders.send(Order::Stop { now: true }).await.unwrap();
    let Frame::Control(ToNode::StdinEof) = new.next().await.unwrap() else { panic!() };
    let Frame::Control(ToNode::Stop { now: true }) = new.next().await.unwrap() else { panic!() };
    drop(orders);
    home.await.unwrap();
}

fn offer() -> Offer {
    let grant = Grant {
        term: Term(1),
        job: JobId::from_bits(7),
        attempt: Attempt(2),
        home: Key::from_seed(&[1; 32]).id(),
        node: Key::from_seed(&[2; 32]).id(),
        incarnation: Incarnation(1),
        gpus: Vec::new(),
        key: OrderKey::default(),
        ttl_ms: 1_000,
    };
    Offer {
        grant: Key::from_seed(&[3; 32]).sign(grant),
        owner: "ada".into(),
        name: "true".into(),
        home_name: "home".into(),
        command: Command { args: Vec::new(), env: Vec::new(), chdir: None, stdin: false },
    }
}
