//! Who is admitted, and who is not, each with the reason.

use proptest::prelude::*;

use super::*;
use crate::core::id::NodeId;
use crate::core::signed::Key;
use crate::core::time::WallTime;

const NOW: WallTime = WallTime(1_800_000_000_000);
const LATER: WallTime = WallTime(1_900_000_000_000);
const ROLES: Roles = Roles { node: true, submit: true, admin: false };

fn mesh_key(number: u8) -> MeshKey {
    MeshKey::from_seed([number; 32])
}

fn key(number: u8) -> Key {
    Key::from_seed(&[number; 32])
}

fn id(number: u8) -> NodeId {
    key(number).id()
}

fn token(mesh: &MeshKey, expires: Option<WallTime>) -> Token {
    mesh.mint(&Grantee { roles: ROLES, user: Some("ada".into()), expires }).unwrap()
}

/// A node with a ticket that is bound to it but that nobody has endorsed.
fn passport(mesh: &MeshKey, number: u8, expires: Option<WallTime>) -> Passport {
    let token = token(mesh, expires).bind(mesh.mesh(), id(number)).unwrap();
    Passport::new(mesh.mesh(), key(number), Credential { token, endorsed: None })
}

fn soon() -> Option<WallTime> {
    Some(WallTime(NOW.0 + 60_000))
}

/// `joiner` dials `member`; whether both recognize each other.
fn join(joiner: &mut Passport, member: &Passport, numbers: (u8, u8), now: WallTime) -> bool {
    let hello = joiner.hello();
    if member.verify(id(numbers.0), &hello, now).is_err() {
        return false;
    }
    let welcome = member.welcome(id(numbers.0), &hello, now).unwrap();
    joiner.accept(id(numbers.1), &welcome, now).is_ok()
}

#[test]
fn a_ticket_survives_being_pasted_and_every_damage_is_told() {
    let mesh = mesh_key(1);
    let addresses = vec!["/ip4/192.0.2.1/tcp/47600".to_owned()];
    let ticket = Ticket { mesh: mesh.mesh(), token: token(&mesh, soon()), addresses };
    let text = ticket.to_string();
    assert_eq!(text.parse::<Ticket>().unwrap(), ticket);
    assert!(matches!("hello".parse::<Ticket>(), Err(TicketError::NotATicket)));
    for cut in PREFIX_LEN..text.len() {
        assert!(matches!(text[..cut].parse::<Ticket>(), Err(TicketError::Damaged)), "{cut}");
    }
    let mistyped = text.replacen(&text[40..41], if &text[40..41] == "A" { "B" } else { "A" }, 1);
    assert!(mistyped.parse::<Ticket>().is_err());
}

const PREFIX_LEN: usize = 8;

#[test]
fn a_member_is_recognized_with_its_roles_and_user() {
    let mesh = mesh_key(1);
    let (founder, joiner) = (passport(&mesh, 1, None), passport(&mesh, 2, soon()));
    let member = founder.verify(id(2), &joiner.hello(), NOW).unwrap();
    assert_eq!(member, Member { node: id(2), roles: ROLES, user: Some("ada".into()) });
}

#[test]
fn strangers_are_refused_each_with_its_reason() {
    let (mesh, other) = (mesh_key(1), mesh_key(2));
    let founder = passport(&mesh, 1, None);
    let refuse = |number, hello: &[u8], now| founder.verify(id(number), hello, now).unwrap_err();

    let foreign = passport(&other, 3, soon());
    assert!(matches!(refuse(3, &foreign.hello(), NOW), AuthError::OtherMesh { .. }));
    // The same lie with the right mesh id in front.
    let Credential { token, .. } = foreign.credential().clone();
    let liar = Passport::new(mesh.mesh(), key(3), Credential { token, endorsed: None });
    assert!(matches!(refuse(3, &liar.hello(), NOW), AuthError::Token(_)));

    let late = passport(&mesh, 3, soon());
    let expired = refuse(3, &late.hello(), LATER);
    let sentence = expired.to_string();
    assert!(
        sentence.contains("2027-01-15T08:01:00Z") && sentence.contains("2030-03-17"),
        "{sentence}"
    );

    let copied = passport(&mesh, 3, soon());
    assert!(matches!(refuse(4, &copied.hello(), NOW), AuthError::BoundToOther { .. }));

    let unbound = Credential { token: self::token(&mesh, soon()), endorsed: None };
    let unbound = Passport::new(mesh.mesh(), key(3), unbound);
    assert!(matches!(refuse(3, &unbound.hello(), NOW), AuthError::NotBound));

    let twice = copied.credential().token.bind(mesh.mesh(), id(4)).unwrap();
    let twice = Passport::new(mesh.mesh(), key(4), Credential { token: twice, endorsed: None });
    assert!(matches!(refuse(4, &twice.hello(), NOW), AuthError::Token(TokenError::Foreign)));
}

#[test]
fn a_membership_outlives_its_ticket_once_a_member_has_seen_it() {
    let mesh = mesh_key(1);
    let founder = passport(&mesh, 1, None);
    let mut joiner = passport(&mesh, 2, soon());
    assert!(join(&mut joiner, &founder, (2, 1), NOW));
    assert_eq!(joiner.credential().chain(), 1);
    assert!(founder.verify(id(2), &joiner.hello(), LATER).is_ok());
    // And it admits others, who outlive their tickets by its word.
    let mut third = passport(&mesh, 3, soon());
    assert!(join(&mut third, &joiner, (3, 2), NOW));
    assert_eq!(third.credential().chain(), 2);
    assert!(founder.verify(id(3), &third.hello(), LATER).is_ok());
    // Meeting the founder later makes the chain shorter, for the same time.
    assert!(join(&mut third, &founder, (3, 1), LATER));
    assert_eq!(third.credential().chain(), 1);
    assert!(founder.verify(id(3), &third.hello(), LATER).is_ok());
}

#[test]
fn an_endorsement_is_for_one_token_of_one_node() {
    let mesh = mesh_key(1);
    let founder = passport(&mesh, 1, None);
    let mut joiner = passport(&mesh, 2, soon());
    join(&mut joiner, &founder, (2, 1), NOW);
    let stolen = joiner.credential().endorsed.clone();
    let thief = passport(&mesh, 3, soon()).credential().token.clone();
    let thief = Passport::new(mesh.mesh(), key(3), Credential { token: thief, endorsed: stolen });
    let refused = founder.verify(id(3), &thief.hello(), LATER).unwrap_err();
    assert!(matches!(refused, AuthError::EndorsementOfOther));
}

#[test]
fn one_who_may_only_submit_admits_nobody() {
    let mesh = mesh_key(1);
    let roles = Roles { node: false, submit: true, admin: false };
    let token = mesh.mint(&Grantee { roles, user: None, expires: None }).unwrap();
    let token = token.bind(mesh.mesh(), id(2)).unwrap();
    let user = Passport::new(mesh.mesh(), key(2), Credential { token, endorsed: None });
    let mut joiner = passport(&mesh, 3, soon());
    assert!(join(&mut joiner, &user, (3, 2), NOW));
    assert_eq!(joiner.credential().chain(), 0);
}

#[test]
fn a_chain_has_an_end() {
    let mesh = mesh_key(1);
    let mut before = passport(&mesh, 1, None);
    for number in 2..=20 {
        let mut next = passport(&mesh, number, soon());
        assert!(join(&mut next, &before, (number, number - 1), NOW));
        before = if next.credential().chain() > 0 { next } else { break };
    }
    assert_eq!(before.credential().chain(), 8);
    assert!(passport(&mesh, 1, None).verify(id(9), &before.hello(), LATER).is_ok());
}

#[test]
fn a_changed_byte_never_makes_another_member_of_it() {
    let mesh = mesh_key(1);
    let founder = passport(&mesh, 1, None);
    let hello = passport(&mesh, 2, soon()).hello();
    let member = founder.verify(id(2), &hello, NOW).unwrap();
    for at in 0..hello.len() {
        let mut bad = hello.clone();
        bad[at] ^= 0x10;
        // A few bytes carry nothing (the name of an absent field); the rest is signed.
        if let Ok(other) = founder.verify(id(2), &bad, NOW) {
            assert_eq!(other, member, "byte {at}");
        }
    }
}

proptest! {
    #[test]
    fn junk_never_panics(junk in proptest::collection::vec(any::<u8>(), 0..300)) {
        let founder = passport(&mesh_key(1), 1, None);
        prop_assert!(founder.verify(id(2), &junk, NOW).is_err());
        let _ = String::from_utf8_lossy(&junk).parse::<Ticket>();
    }
}
