//! Gossip: reports and claims, pushed to everybody by gossipsub.
//!
//! Signatures are strict, and what a peer sends is passed on only when it is one of our messages
//! with a valid signature of its own inside. An empty mesh has nobody to tell, which is no error.

use std::time::Duration;

use libp2p::gossipsub::{
    self, Behaviour, ConfigBuilder, IdentTopic, MessageAcceptance, MessageAuthenticity, MessageId,
    PublishError, ValidationMode,
};
use libp2p::identity::Keypair;
use sha2::{Digest as _, Sha256};

use super::NetError;
use crate::core::id::MeshId;
use crate::core::message::Gossip;
use crate::wire::limits::GOSSIP_MAX;
use crate::wire::{codec, gossip_topic};

/// How often gossipsub looks after its overlay. Messages do not wait for it.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// The behaviour of one mesh.
pub(super) fn behaviour(keypair: &Keypair, mesh: MeshId) -> Result<Behaviour, NetError> {
    let config = ConfigBuilder::default()
        .heartbeat_interval(HEARTBEAT)
        .heartbeat_initial_delay(Duration::from_secs(1))
        .validation_mode(ValidationMode::Strict)
        .validate_messages()
        .max_transmit_size(GOSSIP_MAX)
        .duplicate_cache_time(Duration::from_secs(60))
        .message_id_fn(|message| MessageId::from(Sha256::digest(&message.data).to_vec()))
        .build()
        .map_err(|error| NetError::Gossip(error.to_string()))?;
    let mut behaviour = Behaviour::new(MessageAuthenticity::Signed(keypair.clone()), config)
        .map_err(|error| NetError::Gossip(error.to_owned()))?;
    behaviour.subscribe(&topic(mesh)).map_err(|error| NetError::Gossip(error.to_string()))?;
    Ok(behaviour)
}

/// Tells everybody. Nobody listening is fine; repair brings them up to date later.
pub(super) fn publish(behaviour: &mut Behaviour, mesh: MeshId, message: &Gossip) {
    match behaviour.publish(topic(mesh), codec::encode(message)) {
        Ok(_) | Err(PublishError::NoPeersSubscribedToTopic | PublishError::Duplicate) => {}
        Err(error) => tracing::debug!(%error, "gossip is not sent; repair will tell"),
    }
}

/// Reads what came, and says whether it may travel on.
pub(super) fn receive(
    behaviour: &mut Behaviour,
    from: libp2p::PeerId,
    id: &MessageId,
    message: &gossipsub::Message,
) -> Option<Gossip> {
    let decoded = codec::decode::<Gossip>(&message.data);
    let acceptance = match &decoded {
        Ok(_) => MessageAcceptance::Accept,
        Err(error) => {
            tracing::debug!(peer = %from, %error, "gossip that cannot be read");
            MessageAcceptance::Reject
        }
    };
    behaviour.report_message_validation_result(id, &from, acceptance);
    decoded.ok()
}

fn topic(mesh: MeshId) -> IdentTopic {
    IdentTopic::new(gossip_topic(mesh))
}
