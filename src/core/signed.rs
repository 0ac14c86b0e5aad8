//! A value together with the proof of who said it.
//!
//! A [`Signed`] that exists is a [`Signed`] that was verified: it is made by [`Key::sign`] or by
//! decoding, and decoding checks the signature (ed25519, RFC 8032, strict) over the exact bytes
//! that travelled. So no machine of the core ever has to ask whether a report or a grant is real.
//! What is signed is prefixed by the kind of the value: a signed report can never pass for a grant.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::id::NodeId;

/// Something that can be signed, and the name of its kind.
pub trait Signable: Serialize + DeserializeOwned {
    /// Domain separation: what precedes the bytes under the signature.
    const CONTEXT: &'static [u8];
}

/// A node's secret key. Pure: signatures of ed25519 need no randomness.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(SigningKey);

impl Key {
    /// The key with this seed (the 32 secret bytes).
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// The public half: the node's id.
    pub fn id(&self) -> NodeId {
        NodeId(self.0.verifying_key().to_bytes())
    }

    /// Signs `value`.
    pub fn sign<T: Signable>(&self, value: T) -> Signed<T> {
        let mut bytes = Vec::new();
        // Writing to a vector cannot fail, and no `Signable` has a `Serialize` that refuses.
        #[expect(clippy::expect_used, reason = "see above")]
        ciborium::into_writer(&value, &mut bytes).expect("a signable value can be encoded");
        let signature = self.0.sign(&with_context::<T>(&bytes)).to_bytes();
        let parts = Parts { signer: self.id(), bytes, signature: signature.to_vec() };
        Signed(Arc::new(Content { value, parts }))
    }
}

/// A hash tells nothing of the secret half.
impl Hash for Key {
    fn hash<H: Hasher>(&self, to: &mut H) {
        self.id().hash(to);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.id())
    }
}

/// A verified value that never changes. Cheap to clone.
#[derive(PartialEq, Eq)]
pub struct Signed<T>(Arc<Content<T>>);

#[derive(PartialEq, Eq)]
struct Content<T> {
    value: T,
    parts: Parts,
}

impl<T> Clone for Signed<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Who said it and the bytes that were signed are all that there is to a value.
impl<T> Hash for Signed<T> {
    fn hash<H: Hasher>(&self, to: &mut H) {
        self.0.parts.hash(to);
    }
}

impl<T: fmt::Debug> fmt::Debug for Signed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} signed by {:?}", self.0.value, self.0.parts.signer)
    }
}

/// What travels.
#[derive(PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Parts {
    signer: NodeId,
    #[serde(with = "serde_bytes")]
    bytes: Vec<u8>,
    #[serde(with = "serde_bytes")]
    signature: Vec<u8>,
}

impl<T> Signed<T> {
    /// What was said.
    pub fn value(&self) -> &T {
        &self.0.value
    }

    /// Who said it.
    pub fn signer(&self) -> NodeId {
        self.0.parts.signer
    }

    /// The bytes under the signature: what a digest is made of.
    pub fn bytes(&self) -> &[u8] {
        &self.0.parts.bytes
    }
}

impl<T> Serialize for Signed<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.parts.serialize(to)
    }
}

impl<'de, T: Signable> Deserialize<'de> for Signed<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let parts = Parts::deserialize(from)?;
        let key = VerifyingKey::from_bytes(&parts.signer.0).map_err(D::Error::custom)?;
        let signature = Signature::from_slice(&parts.signature).map_err(D::Error::custom)?;
        key.verify_strict(&with_context::<T>(&parts.bytes), &signature)
            .map_err(D::Error::custom)?;
        let value = ciborium::from_reader(parts.bytes.as_slice()).map_err(D::Error::custom)?;
        Ok(Self(Arc::new(Content { value, parts })))
    }
}

fn with_context<T: Signable>(bytes: &[u8]) -> Vec<u8> {
    [T::CONTEXT, bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Note(String);

    impl Signable for Note {
        const CONTEXT: &'static [u8] = b"note";
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Order(String);

    impl Signable for Order {
        const CONTEXT: &'static [u8] = b"order";
    }

    fn encoded(signed: &impl Serialize) -> Vec<u8> {
        let mut bytes = Vec::new();
        ciborium::into_writer(signed, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_signed_value_survives_the_wire() {
        let key = Key::from_seed(&[1; 32]);
        let signed = key.sign(Note("hello".into()));
        let back: Signed<Note> = ciborium::from_reader(encoded(&signed).as_slice()).unwrap();
        assert_eq!(back, signed);
        assert_eq!(back.signer(), key.id());
    }

    #[test]
    fn a_changed_byte_anywhere_is_refused() {
        let bytes = encoded(&Key::from_seed(&[1; 32]).sign(Note("hello".into())));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(ciborium::from_reader::<Signed<Note>, _>(bad.as_slice()).is_err(), "byte {at}");
        }
    }

    #[test]
    fn one_kind_never_passes_for_another() {
        let bytes = encoded(&Key::from_seed(&[1; 32]).sign(Note("hello".into())));
        assert!(ciborium::from_reader::<Signed<Order>, _>(bytes.as_slice()).is_err());
    }
}
