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
    mesh.mint(&Grantee { roles: ROLES, user: Some("ada".into()), expires, uses: 1 }).unwrap()
}

/// A node with a ticket that is bound to it but that nobody has endorsed.
fn passport(mesh: &MeshKey, number: u8, expires: Option<WallTime>) -> Passport {
    let token = token(mesh, expires).bind(mesh.mesh(), id(number)).unwrap();
    Passport::new(
        mesh.mesh(),
        key(number),
        Credential { token, endorsed: None },
        Tickets::default(),
    )
}

fn soon() -> Option<WallTime> {
    Some(WallTime(NOW.0 + 60_000))
}

/// `joiner` dials `member`; whether both recognize each other.
fn join(joiner: &mut Passport, member: &mut Passport, numbers: (u8, u8), now: WallTime) -> bool {
    let hello = joiner.hello();
    let Ok((_, welcome)) = member.welcome(id(numbers.0), &hello, now) else { return false };
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
    let (mut founder, joiner) = (passport(&mesh, 1, None), passport(&mesh, 2, soon()));
    let member = founder.verify(id(2), &joiner.hello(), NOW).unwrap();
    assert_eq!((member.node, member.roles), (id(2), ROLES));
    assert_eq!(member.user.as_deref(), Some("ada"));
}

#[test]
fn strangers_are_refused_each_with_its_reason() {
    let (mesh, other) = (mesh_key(1), mesh_key(2));
    let mut founder = passport(&mesh, 1, None);
    let mut refuse =
        |number, hello: &[u8], now| founder.verify(id(number), hello, now).unwrap_err();

    let foreign = passport(&other, 3, soon());
    assert!(matches!(refuse(3, &foreign.hello(), NOW), AuthError::OtherMesh { .. }));
    // The same lie with the right mesh id in front.
    let Credential { token, .. } = foreign.credential().clone();
    let liar = Passport::new(
        mesh.mesh(),
        key(3),
        Credential { token, endorsed: None },
        Tickets::default(),
    );
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
    let unbound = Passport::new(mesh.mesh(), key(3), unbound, Tickets::default());
    assert!(matches!(refuse(3, &unbound.hello(), NOW), AuthError::NotBound));

    let twice = copied.credential().token.bind(mesh.mesh(), id(4)).unwrap();
    let twice = Passport::new(
        mesh.mesh(),
        key(4),
        Credential { token: twice, endorsed: None },
        Tickets::default(),
    );
    assert!(matches!(refuse(4, &twice.hello(), NOW), AuthError::Token(TokenError::Foreign)));
}

#[test]
fn a_membership_outlives_its_ticket_once_a_member_has_seen_it() {
    let mesh = mesh_key(1);
    let mut founder = passport(&mesh, 1, None);
    let mut joiner = passport(&mesh, 2, soon());
    assert!(join(&mut joiner, &mut founder, (2, 1), NOW));
    assert_eq!(joiner.credential().chain(), 1);
    assert!(founder.verify(id(2), &joiner.hello(), LATER).is_ok());
    // And it admits others, who outlive their tickets by its word.
    let mut third = passport(&mesh, 3, soon());
    assert!(join(&mut third, &mut joiner, (3, 2), NOW));
    assert_eq!(third.credential().chain(), 2);
    assert!(founder.verify(id(3), &third.hello(), LATER).is_ok());
    // Meeting the founder later makes the chain shorter, for the same time.
    assert!(join(&mut third, &mut founder, (3, 1), LATER));
    assert_eq!(third.credential().chain(), 1);
    assert!(founder.verify(id(3), &third.hello(), LATER).is_ok());
}

#[test]
fn an_endorsement_is_for_one_token_of_one_node() {
    let mesh = mesh_key(1);
    let mut founder = passport(&mesh, 1, None);
    let mut joiner = passport(&mesh, 2, soon());
    join(&mut joiner, &mut founder, (2, 1), NOW);
    let stolen = joiner.credential().endorsed.clone();
    let thief = passport(&mesh, 3, soon()).credential().token.clone();
    let thief = Passport::new(
        mesh.mesh(),
        key(3),
        Credential { token: thief, endorsed: stolen },
        Tickets::default(),
    );
    let refused = founder.verify(id(3), &thief.hello(), LATER).unwrap_err();
    assert!(matches!(refused, AuthError::EndorsementOfOther));
}

#[test]
fn one_who_may_only_submit_admits_nobody() {
    let mesh = mesh_key(1);
    let roles = Roles { node: false, submit: true, admin: false };
    let token = mesh.mint(&Grantee { roles, user: None, expires: None, uses: 1 }).unwrap();
    let token = token.bind(mesh.mesh(), id(2)).unwrap();
    let mut user = Passport::new(
        mesh.mesh(),
        key(2),
        Credential { token, endorsed: None },
        Tickets::default(),
    );
    let mut joiner = passport(&mesh, 3, soon());
    assert!(join(&mut joiner, &mut user, (3, 2), NOW));
    assert_eq!(joiner.credential().chain(), 0);
}

#[test]
fn a_chain_has_an_end() {
    let mesh = mesh_key(1);
    let mut before = passport(&mesh, 1, None);
    for number in 2..=20 {
        let mut next = passport(&mesh, number, soon());
        assert!(join(&mut next, &mut before, (number, number - 1), NOW));
        before = if next.credential().chain() > 0 { next } else { break };
    }
    assert_eq!(before.credential().chain(), 8);
    assert!(passport(&mesh, 1, None).verify(id(9), &before.hello(), LATER).is_ok());
}

#[test]
fn a_changed_byte_never_makes_another_member_of_it() {
    let mesh = mesh_key(1);
    let mut founder = passport(&mesh, 1, None);
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
        let mut founder = passport(&mesh_key(1), 1, None);
        prop_assert!(founder.verify(id(2), &junk, NOW).is_err());
        let _ = String::from_utf8_lossy(&junk).parse::<Ticket>();
    }
}

/// Two machines that have bound copies of one ticket, and two members.
fn copies(mesh: &MeshKey, uses: u32, numbers: &[u8]) -> Vec<Passport> {
    let grantee = Grantee { roles: ROLES, user: None, expires: soon(), uses };
    let ticket = mesh.mint(&grantee).unwrap();
    let bound = |number: &u8| {
        let token = ticket.bind(mesh.mesh(), id(*number)).unwrap();
        let credential = Credential { token, endorsed: None };
        Passport::new(mesh.mesh(), key(*number), credential, Tickets::default())
    };
    numbers.iter().map(bound).collect()
}

/// What a member says to a dialler.
fn told(joiner: &Passport, number: u8, member: &mut Passport, now: WallTime) -> String {
    match member.welcome(id(number), &joiner.hello(), now) {
        Ok(_) => "welcome".into(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_ticket_lets_in_one_machine_and_refuses_the_next_one_by_name() {
    let mesh = mesh_key(1);
    let mut founder = passport(&mesh, 1, None);
    let [first, second] = &mut copies(&mesh, 1, &[2, 3])[..] else { unreachable!() };
    assert!(join(first, &mut founder, (2, 1), NOW));
    let sentence = told(second, 3, &mut founder, NOW);
    assert!(sentence.contains(&id(2).to_string()), "{sentence}");
    // The first may come again: as often as it likes, and after the ticket has expired.
    for now in [NOW, LATER] {
        assert!(join(first, &mut founder, (2, 1), now));
    }
    // Also those who were not there have seen the first, and know from it who that is.
    let mut other = passport(&mesh, 4, None);
    assert!(join(first, &mut other, (2, 4), NOW));
    assert!(told(second, 3, &mut other, NOW).contains("was used by node"));
    // And the first itself knows.
    assert!(told(second, 3, first, NOW).contains("was used by node"));
}

#[test]
fn a_machine_knows_that_its_own_ticket_is_used() {
    let mesh = mesh_key(1);
    let [first, second] = &mut copies(&mesh, 1, &[2, 3])[..] else { unreachable!() };
    assert!(first.own(NOW).is_ok());
    assert!(told(second, 3, first, NOW).contains("was used by node"));
}

#[test]
fn who_used_a_ticket_is_known_after_a_restart() {
    let mesh = mesh_key(1);
    let mut founder = passport(&mesh, 1, None);
    let [first, second] = &mut copies(&mesh, 1, &[2, 3])[..] else { unreachable!() };
    assert!(join(first, &mut founder, (2, 1), NOW));
    let kept = founder.take_changes();
    let kept = kept.into_iter().map(|(ticket, used)| (ticket, used.unwrap()));
    let credential = founder.credential().clone();
    let mut founder = Passport::new(mesh.mesh(), key(1), credential, Tickets::new(kept));
    assert!(told(second, 3, &mut founder, NOW).contains("was used by node"));
    assert_eq!(founder.take_changes(), []);
}

/// Two members that cannot reach each other let in one each. The one that was seen first stays
/// wherever both have been seen, whoever came first there.
#[test]
fn members_that_were_apart_come_to_the_same_answer() {
    let mesh = mesh_key(1);
    let (mut one, mut two) = (passport(&mesh, 1, None), passport(&mesh, 4, None));
    let [first, second] = &mut copies(&mesh, 1, &[2, 3])[..] else { unreachable!() };
    assert!(join(first, &mut one, (2, 1), NOW));
    let after = WallTime(NOW.0 + 1_000);
    assert!(join(second, &mut two, (3, 4), after));
    assert!(!join(second, &mut one, (3, 1), LATER));
    assert!(join(first, &mut two, (2, 4), LATER));
    assert!(!join(second, &mut two, (3, 4), LATER));
    assert!(join(first, &mut two, (2, 4), LATER));
}

/// Seen only by one who may not endorse, whose clock is early: that is no proof for others.
#[test]
fn what_was_endorsed_counts_before_what_was_only_seen() {
    let mesh = mesh_key(1);
    let roles = Roles { node: false, submit: true, admin: false };
    let grantee = Grantee { roles, user: None, expires: None, uses: 1 };
    let token = mesh.mint(&grantee).unwrap().bind(mesh.mesh(), id(5)).unwrap();
    let credential = Credential { token, endorsed: None };
    let mut guest = Passport::new(mesh.mesh(), key(5), credential, Tickets::default());
    let mut founder = passport(&mesh, 1, None);
    let [first, second] = &mut copies(&mesh, 1, &[2, 3])[..] else { unreachable!() };
    assert!(join(second, &mut guest, (3, 5), WallTime(NOW.0 - 1_000)));
    assert!(join(first, &mut founder, (2, 1), NOW));
    assert!(join(first, &mut guest, (2, 5), NOW));
    // Not even a clock that was set back makes the other one the first.
    assert!(!join(second, &mut guest, (3, 5), WallTime(NOW.0 - 9_000)));
}

#[test]
fn a_ticket_for_three_lets_in_three() {
    let mesh = mesh_key(1);
    let mut founder = passport(&mesh, 1, None);
    let machines = &mut copies(&mesh, 3, &[2, 3, 4, 5]);
    for (number, machine) in (2..=4).zip(machines.iter_mut()) {
        assert!(join(machine, &mut founder, (number, 1), NOW));
    }
    let sentence = told(&machines[3], 5, &mut founder, NOW);
    assert!(sentence.contains("3 machines"), "{sentence}");
    assert!(join(&mut machines[0], &mut founder, (2, 1), LATER));
}

/// A ticket's name is not in the bearer's hands.
#[test]
fn binding_does_not_change_which_ticket_it_is() {
    let mesh = mesh_key(1);
    let mut founder = passport(&mesh, 1, None);
    let [first, second] = &mut copies(&mesh, 1, &[2, 3])[..] else { unreachable!() };
    let shown = |founder: &mut Passport, number, hello: &[u8]| {
        founder.verify(id(number), hello, NOW).map(|member| member.shown.unwrap().ticket)
    };
    let hello = first.hello();
    let ticket = shown(&mut founder, 2, &hello).unwrap();
    for at in 0..hello.len() {
        for bit in [0x01, 0x10, 0x80] {
            let mut bad = hello.clone();
            bad[at] ^= bit;
            if let Ok(other) = shown(&mut founder, 2, &bad) {
                assert_eq!(other, ticket, "byte {at}");
            }
        }
    }
    let mut other = passport(&mesh, 4, None);
    assert_eq!(shown(&mut other, 3, &second.hello()).unwrap(), ticket);
}

#[test]
fn a_member_remembers_a_bounded_number_of_uses_and_forgets_old_tickets_first() {
    let used = |number: u64, expires: u64| {
        let mut ticket = [0; 32];
        ticket[..8].copy_from_slice(&number.to_be_bytes());
        let use_of = Use { node: id(9), endorsed: true, at: NOW };
        (TicketId(ticket), Used { expires: WallTime(expires), by: vec![use_of] })
    };
    let mesh = mesh_key(1);
    let full = (0..16_384).map(|number| used(number, NOW.0 - 1 - number));
    let token = token(&mesh, None).bind(mesh.mesh(), id(1)).unwrap();
    let credential = Credential { token, endorsed: None };
    let mut founder = Passport::new(mesh.mesh(), key(1), credential, Tickets::new(full));
    let [first, second] = &mut copies(&mesh, 1, &[2, 3])[..] else { unreachable!() };
    assert!(join(first, &mut founder, (2, 1), NOW));
    assert!(told(second, 3, &mut founder, NOW).contains("was used by node"));
    let forgotten = founder.take_changes().into_iter().filter(|(_, used)| used.is_none());
    assert_eq!(forgotten.map(|(ticket, _)| ticket).collect::<Vec<_>>(), [used(16_383, 0).0]);
}
