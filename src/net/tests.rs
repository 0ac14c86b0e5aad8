//! Real swarms on loopback: who is let in, what arrives, and what is bounded.

use std::collections::BTreeSet;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::core::report::testing::report;
use crate::core::rights::Rights;
use crate::core::signed::Key;

/// Lets in whoever is on a list; the word is the node's own id.
struct List {
    me: NodeId,
    friends: BTreeSet<NodeId>,
}

impl List {
    fn judge(&self, peer: NodeId) -> Result<Admitted, String> {
        match self.friends.contains(&peer) {
            true => Ok(Admitted { rights: Rights::ALL, is_admin: false, user: None }),
            false => Err(format!("{} is not on the list", peer.short())),
        }
    }
}

impl Admission for List {
    fn hello(&self) -> Vec<u8> {
        self.me.0.to_vec()
    }

    fn welcome(&self, peer: NodeId, word: &[u8]) -> Result<(Admitted, Vec<u8>), String> {
        Ok((self.accept(peer, word)?, self.hello()))
    }

    fn accept(&self, peer: NodeId, word: &[u8]) -> Result<Admitted, String> {
        assert_eq!(peer.0, *word);
        self.judge(peer)
    }
}

fn id(number: u8) -> NodeId {
    Key::from_seed(&[number; 32]).id()
}

struct Peer {
    id: NodeId,
    handle: Handle,
    events: mpsc::Receiver<Event>,
    address: Multiaddr,
}

const TCP: &str = "/ip4/127.0.0.1/tcp/0";
const QUIC: &str = "/ip4/127.0.0.1/udp/0/quic-v1";

async fn peer(number: u8, friends: &[u8], listen: &str) -> Peer {
    let me = id(number);
    let friends = friends.iter().map(|friend| id(*friend)).collect();
    let (handle, mut events) = start(Config {
        seed: [number; 32],
        mesh: MeshId([9; 32]),
        listen: vec![listen.parse().unwrap()],
        mdns: false,
        agent: "test".into(),
        connections_max: 100,
        admission: Arc::new(List { me, friends }),
    })
    .unwrap();
    let address = loop {
        if let Some(Event::Listening(addresses)) = events.recv().await {
            break addresses[0].clone();
        }
    };
    Peer { id: me, handle, events, address }
}

impl Peer {
    /// The next event that is wanted, within a deadline.
    async fn wait<T>(&mut self, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
        let wait = async {
            loop {
                let event = self.events.recv().await.expect("the network runs");
                if let Some(found) = wanted(event) {
                    return found;
                }
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), wait).await.expect("it comes")
    }

    async fn linked(&mut self, with: NodeId) {
        self.wait(|event| {
            matches!(event, Event::Linked { peer, .. } if peer == with).then_some(())
        })
        .await;
    }
}

fn message(number: u64) -> Message {
    Message::Swim(serde_bytes::ByteBuf::from(number.to_be_bytes().to_vec()))
}

async fn two(listen: &str) -> (Peer, Peer) {
    let (mut a, mut b) = (peer(1, &[2], listen).await, peer(2, &[1], listen).await);
    a.handle.dial(b.id, vec![b.address.clone()]);
    a.linked(b.id).await;
    b.linked(a.id).await;
    (a, b)
}

#[tokio::test]
async fn members_are_linked_and_messages_travel_both_ways_on_tcp_and_quic() {
    for listen in [TCP, QUIC] {
        let (mut a, mut b) = two(listen).await;
        for number in 0..100 {
            a.handle.send(b.id, message(number));
            b.handle.send(a.id, message(number));
        }
        for number in 0..100 {
            for (peer, other) in [(&mut a, id(2)), (&mut b, id(1))] {
                let got = peer.wait(|event| match event {
                    Event::Received(from, message) => Some((from, message)),
                    _ => None,
                });
                assert_eq!(got.await, (other, message(number)));
            }
        }
    }
}

#[tokio::test]
async fn a_stranger_is_refused_with_one_sentence_on_both_sides() {
    let mut member = peer(1, &[], TCP).await;
    let mut stranger = peer(2, &[1], TCP).await;
    stranger.handle.dial_address(member.address.clone());
    for side in [&mut member, &mut stranger] {
        let why = side.wait(|event| match event {
            Event::Refused { why, .. } => Some(why),
            Event::Linked { .. } => panic!("a stranger is linked"),
            _ => None,
        });
        assert!(why.await.contains("is not on the list"));
    }
    assert!(stranger.handle.open_task(member.id).await.is_err());
}

#[tokio::test]
async fn a_listener_that_is_no_member_is_refused_by_the_dialler() {
    let mut listener = peer(1, &[2], TCP).await;
    let mut dialler = peer(2, &[], TCP).await;
    dialler.handle.dial(listener.id, vec![listener.address.clone()]);
    for side in [&mut listener, &mut dialler] {
        let why = side.wait(|event| match event {
            Event::Refused { why, .. } => Some(why),
            _ => None,
        });
        assert!(why.await.contains("is not on the list"));
    }
}

#[tokio::test]
async fn half_open_connections_hold_up_nobody() {
    let mut member = peer(1, &[2], TCP).await;
    let socket = member.address.iter().fold(None, |port, part| match part {
        libp2p::multiaddr::Protocol::Tcp(port) => Some(port),
        _ => port,
    });
    let mut open = Vec::new();
    for _ in 0..20 {
        open.push(tokio::net::TcpStream::connect(("127.0.0.1", socket.unwrap())).await.unwrap());
    }
    let mut friend = peer(2, &[1], TCP).await;
    friend.handle.dial(member.id, vec![member.address.clone()]);
    friend.linked(member.id).await;
    member.linked(friend.id).await;
    drop(open);
}

#[tokio::test]
async fn gossip_reaches_those_who_are_not_linked_with_its_source() {
    let (mut a, b) = two(TCP).await;
    let mut c = peer(3, &[2], TCP).await;
    // The second knows the third only from now on.
    drop(b);
    let mut b = peer(2, &[1, 3], TCP).await;
    a.wait(|event| matches!(event, Event::Unlinked(_)).then_some(())).await;
    a.handle.dial(b.id, vec![b.address.clone()]);
    c.handle.dial(b.id, vec![b.address.clone()]);
    a.linked(b.id).await;
    c.linked(b.id).await;
    let mut told = 0;
    loop {
        // Subscriptions travel too: the first words may find nobody listening yet.
        told += 1;
        let mut said = report(1, Vec::new());
        said.version = crate::core::id::Version(told);
        let said = Key::from_seed(&[1; 32]).sign(said);
        a.handle.gossip(Gossip::Report(said));
        let heard = tokio::time::timeout(
            std::time::Duration::from_millis(100),
            c.wait(|event| match event {
                Event::Gossiped(Gossip::Report(report)) => Some(report.signer()),
                _ => None,
            }),
        );
        if let Ok(signer) = heard.await {
            assert_eq!(signer, id(1));
            break;
        }
        assert!(told < 200, "gossip never arrives");
    }
    while b.events.try_recv().is_ok() {}
}

#[tokio::test]
async fn a_task_stream_carries_every_byte_and_many_may_be_opened_at_once() {
    let (a, mut b) = two(TCP).await;
    let server = tokio::spawn(async move {
        for _ in 0..32 {
            let (from, mut stream) = b
                .wait(|event| match event {
                    Event::TaskStream { from, stream, .. } => Some((from, stream)),
                    _ => None,
                })
                .await;
            assert_eq!(from, id(1));
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).await.unwrap();
                stream.write_all(&bytes).await.unwrap();
                stream.shutdown().await.unwrap();
            });
        }
        b
    });
    let streams = (0..32u8).map(|number| {
        let handle = a.handle.clone();
        tokio::spawn(async move {
            let mut stream = handle.open_task(id(2)).await.unwrap();
            let bytes = vec![number; 200_000];
            stream.write_all(&bytes).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).await.unwrap();
            assert!(back == bytes);
        })
    });
    for stream in streams.collect::<Vec<_>>() {
        stream.await.unwrap();
    }
    server.await.unwrap();
}

/// Whoever reads wakes up, also when this side ended the connection: the muxer alone forgets it.
#[tokio::test]
async fn a_hangup_ends_the_task_streams_on_both_sides() {
    for listen in [TCP, QUIC] {
        for near in [true, false] {
            let (a, mut b) = two(listen).await;
            let mut stream = a.handle.open_task(b.id).await.unwrap();
            stream.write_all(b"x").await.unwrap();
            let mut other = b
                .wait(|event| match event {
                    Event::TaskStream { stream, .. } => Some(stream),
                    _ => None,
                })
                .await;
            assert_eq!(other.read_u8().await.unwrap(), b'x');
            match near {
                true => a.handle.hangup(b.id),
                false => b.handle.hangup(a.id),
            }
            for stream in [&mut stream, &mut other] {
                let end = stream.read_u8();
                let end = tokio::time::timeout(std::time::Duration::from_secs(20), end).await;
                assert!(end.expect("the reader wakes up").is_err());
            }
        }
    }
}

#[tokio::test]
async fn a_peer_that_comes_back_under_its_id_is_linked_again() {
    let (mut a, b) = two(TCP).await;
    assert_eq!((a.handle.rights(id(2)), a.handle.rights(id(3))), (Some(Rights::ALL), None));
    b.handle.stop().await;
    a.wait(|event| matches!(event, Event::Unlinked(peer) if peer == id(2)).then_some(())).await;
    let again = peer(2, &[1], TCP).await;
    a.handle.dial(again.id, vec![again.address.clone()]);
    a.linked(again.id).await;
}

#[tokio::test]
async fn a_dial_of_nobody_and_of_somebody_else_fails_and_bans_nobody() {
    let (mut a, b) = (peer(1, &[2], TCP).await, peer(2, &[1], TCP).await);
    a.handle.dial(id(3), vec![b.address.clone()]);
    let failed = a.wait(|event| match event {
        Event::DialFailed { peer, .. } => Some(peer),
        _ => None,
    });
    assert_eq!(failed.await, Some(id(3)));
    a.handle.dial(b.id, vec!["/ip4/127.0.0.1/tcp/1".parse().unwrap(), b.address.clone()]);
    a.linked(b.id).await;
}

#[test]
fn a_slow_peer_costs_a_bounded_queue_and_the_rest_is_counted() {
    let dropped = Arc::new(AtomicU64::new(0));
    let (link, _outgoing) = link::Link::new(Arc::clone(&dropped));
    let sent = (0..5_000).filter(|number| link.send(id(2), &message(*number))).count();
    assert_eq!(sent, crate::wire::limits::LINK_QUEUE_MAX);
    assert_eq!(dropped.load(Ordering::Relaxed), 5_000 - sent as u64);
}
