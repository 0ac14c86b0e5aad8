//! Who are you? Asked on every connection, of both sides, before anything else is served.
//!
//! It runs on the first substream of a connection, underneath libp2p's swarm: a connection that is
//! refused never becomes one. The dialler says [`ADMIT`] and its credential; the listener judges
//! it and answers with its own, or with a sentence that says why not; the dialler judges that and
//! says so. Works alike on TCP and QUIC, which have proved before who holds which key.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use futures::future::poll_fn;
use futures::{AsyncReadExt as _, AsyncWriteExt as _};
use libp2p::PeerId;
use libp2p::core::ConnectedPoint;
use libp2p::core::muxing::{StreamMuxerBox, StreamMuxerExt as _, SubstreamBox};
use tokio::sync::mpsc;

use super::Event;
use super::address::node_of;
use super::frames::{read_frame, write_frame};
use crate::core::id::NodeId;
use crate::core::rights::Rights;
use crate::wire::ADMIT;
use crate::wire::limits::{ADMIT_MAX, ADMIT_TIMEOUT};

/// Judges who may be a peer. Words are opaque here.
pub trait Admission: Send + Sync + 'static {
    /// What this node says first when it dials.
    fn hello(&self) -> Vec<u8>;

    /// Judges a dialler's word, and says what this node answers.
    ///
    /// # Errors
    /// If it is not a member: a sentence for both sides.
    fn welcome(&self, peer: NodeId, word: &[u8]) -> Result<(Admitted, Vec<u8>), String>;

    /// Judges a listener's answer.
    ///
    /// # Errors
    /// If it is not a member: a sentence for both sides.
    fn accept(&self, peer: NodeId, word: &[u8]) -> Result<Admitted, String>;
}

/// What a peer may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// It may run tasks, or submit jobs.
    pub rights: Rights,
    /// It may see and end the jobs of others.
    pub is_admin: bool,
    /// The user whose jobs are its, if its token names one.
    pub user: Option<String>,
}

/// Why a connection did not become one.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdmitError {
    /// The other side failed, or spoke another language.
    #[error("the connection ended before both sides were known")]
    Io(#[from] io::Error),
    /// This side does not recognize the other.
    #[error("refused: {0}")]
    RefusedHere(String),
    /// The other side does not recognize this one.
    #[error("refused by the other side: {0}")]
    RefusedThere(String),
    /// It took too long.
    #[error("the other side did not say who it is in time")]
    Timeout,
}

/// What the listener's answer begins with.
const WELCOME: u8 = 1;
const REFUSAL: u8 = 0;

/// Bytes of a sentence of refusal.
const SENTENCE_MAX: usize = 1_024;

/// Everybody's admission, and who passed it.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) admission: Arc<dyn Admission>,
    pub(super) passed: Passed,
    /// Refusals are told; if nobody takes them up they are only logged.
    pub(super) events: mpsc::Sender<Event>,
}

/// Peers that have an admitted connection, or are about to.
#[derive(Clone, Debug, Default)]
pub(super) struct Passed(Arc<Mutex<Through>>);

#[derive(Debug, Default)]
struct Through {
    peers: BTreeMap<PeerId, (Passage, Admitted)>,
    last: u64,
}

/// One time that a peer came through the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passage(u64);

impl Passed {
    fn insert(&self, peer: PeerId, admitted: Admitted) {
        let mut through = self.lock();
        through.last += 1;
        let passage = Passage(through.last);
        through.peers.insert(peer, (passage, admitted));
    }

    /// What a peer may do.
    pub(super) fn find(&self, peer: PeerId) -> Option<Admitted> {
        self.lock().peers.get(&peer).map(|(_, admitted)| admitted.clone())
    }

    /// When it came last.
    pub(super) fn passage(&self, peer: PeerId) -> Option<Passage> {
        self.lock().peers.get(&peer).map(|(passage, _)| *passage)
    }

    /// Forgets a peer whose last connection is closed, unless it has come again since.
    pub(super) fn remove(&self, peer: PeerId, known: Option<Passage>) {
        let mut through = self.lock();
        if through.peers.get(&peer).is_some_and(|(passage, _)| Some(*passage) == known) {
            through.peers.remove(&peer);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Through> {
        // Nothing under the lock can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate {
    /// Lets a connection through, or not.
    pub(super) async fn admit(
        self,
        peer: PeerId,
        mut muxer: StreamMuxerBox,
        point: ConnectedPoint,
    ) -> Result<(PeerId, StreamMuxerBox), AdmitError> {
        let dials = point.is_dialer();
        let address = point.get_remote_address().clone();
        let result = match node_of(&peer) {
            Some(node) => {
                let exchange = self.exchange(node, dials, &mut muxer);
                tokio::time::timeout(ADMIT_TIMEOUT, exchange)
                    .await
                    .unwrap_or(Err(AdmitError::Timeout))
            }
            None => Err(AdmitError::RefusedHere("its key is not an ed25519 key".into())),
        };
        match result {
            Ok(admitted) => {
                self.passed.insert(peer, admitted);
                Ok((peer, muxer))
            }
            Err(error) => {
                tracing::warn!(%peer, %address, %error, "a peer is not admitted");
                let why = error.to_string();
                let _ = self.events.try_send(Event::Refused { peer: node_of(&peer), address, why });
                Err(error)
            }
        }
    }

    async fn exchange(
        &self,
        peer: NodeId,
        dials: bool,
        muxer: &mut StreamMuxerBox,
    ) -> Result<Admitted, AdmitError> {
        let stream = poll_fn(|cx| {
            if let Poll::Ready(Err(error)) = muxer.poll_unpin(cx) {
                return Poll::Ready(Err(error));
            }
            if dials { muxer.poll_outbound_unpin(cx) } else { muxer.poll_inbound_unpin(cx) }
        })
        .await?;
        let talk = async {
            if dials { self.dial(peer, stream).await } else { self.listen(peer, stream).await }
        };
        let mut talk = pin!(talk);
        // The stream makes progress only while its connection is driven.
        poll_fn(|cx| {
            if let Poll::Ready(result) = talk.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            match muxer.poll_unpin(cx) {
                // The talk may be over already, and only have waited for this end.
                Poll::Ready(Err(error)) => match talk.as_mut().poll(cx) {
                    Poll::Ready(result) => Poll::Ready(result),
                    Poll::Pending => Poll::Ready(Err(error.into())),
                },
                Poll::Ready(Ok(_)) => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    async fn dial(&self, peer: NodeId, mut stream: SubstreamBox) -> Result<Admitted, AdmitError> {
        stream.write_all(ADMIT.as_bytes()).await?;
        stream.write_all(b"\n").await?;
        write_frame(&mut stream, &self.admission.hello()).await?;
        stream.flush().await?;
        let mut kind = [0];
        stream.read_exact(&mut kind).await?;
        if kind[0] != WELCOME {
            return Err(refusal(&mut stream).await?);
        }
        let word = read_frame(&mut stream, ADMIT_MAX).await?;
        let verdict = self.admission.accept(peer, &word);
        self.say(&mut stream, verdict.as_ref().err()).await?;
        if verdict.is_err() {
            // The listener closes when it has read why.
            let _ = stream.read_exact(&mut [0]).await;
        }
        verdict.map_err(AdmitError::RefusedHere)
    }

    async fn listen(&self, peer: NodeId, mut stream: SubstreamBox) -> Result<Admitted, AdmitError> {
        let mut magic = [0; ADMIT.len() + 1];
        stream.read_exact(&mut magic).await?;
        if magic[..ADMIT.len()] != *ADMIT.as_bytes() {
            return Err(AdmitError::RefusedHere("it does not speak gpuvine's protocol".into()));
        }
        let word = read_frame(&mut stream, ADMIT_MAX).await?;
        let (admitted, welcome) = match self.admission.welcome(peer, &word) {
            Ok(verdict) => verdict,
            Err(sentence) => {
                self.say(&mut stream, Some(&sentence)).await?;
                // The dialler closes when it has read why.
                let _ = stream.read_exact(&mut [0]).await;
                return Err(AdmitError::RefusedHere(sentence));
            }
        };
        stream.write_all(&[WELCOME]).await?;
        write_frame(&mut stream, &welcome).await?;
        stream.flush().await?;
        let mut kind = [0];
        stream.read_exact(&mut kind).await?;
        if kind[0] != WELCOME {
            return Err(refusal(&mut stream).await?);
        }
        Ok(admitted)
    }

    async fn say(&self, stream: &mut SubstreamBox, refusal: Option<&String>) -> io::Result<()> {
        match refusal {
            None => stream.write_all(&[WELCOME]).await?,
            Some(sentence) => {
                let cut = sentence.floor_char_boundary(SENTENCE_MAX);
                stream.write_all(&[REFUSAL]).await?;
                write_frame(stream, &sentence.as_bytes()[..cut]).await?;
            }
        }
        stream.flush().await
    }
}

/// Why the other side refuses.
async fn refusal(stream: &mut SubstreamBox) -> io::Result<AdmitError> {
    let sentence = read_frame(stream, SENTENCE_MAX).await?;
    Ok(AdmitError::RefusedThere(clean(&String::from_utf8_lossy(&sentence))))
}

/// A stranger's sentence goes into a log: no line breaks, no terminal escapes.
fn clean(sentence: &str) -> String {
    sentence.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::rights::Rights;

    /// A peer that came back before its old connection was found dead was deaf from then on.
    #[test]
    fn the_end_of_an_old_connection_does_not_undo_a_new_one() {
        let passed = Passed::default();
        let admitted = || Admitted {
            rights: Rights { node: true, submit: true },
            is_admin: false,
            user: None,
        };
        let peer = PeerId::random();
        passed.insert(peer, admitted());
        let old = passed.passage(peer);
        passed.insert(peer, admitted());
        passed.remove(peer, old);
        assert!(passed.find(peer).is_some());
        passed.remove(peer, passed.passage(peer));
        assert!(passed.find(peer).is_none());
    }
}
