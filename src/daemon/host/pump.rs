//! A task's output on its way to whoever wants it, at their own pace, and then its end.

use std::sync::Arc;

use tokio::sync::watch;

use super::table::Hosted;
use crate::core::task::Outcome;
use crate::core::time::WallTime;
use crate::daemon::stream::{HEADROOM, PIECE, StreamError, Writer};
use crate::run::{Chunk, OutputReader};
use crate::wire::task::{Output, ToHome};

/// What part of the output that is kept a reader gives up that is too slow for a task that still
/// writes.
const LEAD: u64 = 8;

/// From the files of a task into one stream.
pub(super) struct Pump {
    hosted: Arc<Hosted>,
    outputs: (OutputReader, OutputReader),
    /// The next offset wanted of each output, if it is wanted.
    wanted: (Option<u64>, Option<u64>),
    /// Whether to go on until the task has ended.
    follow: bool,
    /// Where output is read to; empty until there is some.
    buffer: Vec<u8>,
}

impl Pump {
    pub(super) fn new(
        hosted: Arc<Hosted>,
        wanted: (Option<u64>, Option<u64>),
        follow: bool,
    ) -> Result<Self, StreamError> {
        let outputs = hosted.outputs()?;
        Ok(Self { hosted, outputs, wanted, follow, buffer: Vec::new() })
    }

    /// Sends what is wanted; with `credit` also how much input was taken. Ends after the task's
    /// end, or when there is no more and nobody wants to wait.
    pub(super) async fn run(
        mut self,
        writer: &mut Writer,
        mut credit: Option<watch::Receiver<u64>>,
    ) -> Result<(), StreamError> {
        let mut totals = self.hosted.totals.clone();
        let mut ended = self.hosted.ended.clone();
        let (mut totals_live, mut ended_live) = (true, true);
        loop {
            // In this order: when the end is known, the totals that come after are the last.
            let end: Option<(Outcome, WallTime)> = ended.borrow_and_update().clone();
            totals.mark_unchanged();
            let sent = self.send(writer, Output::Stdout).await?
                | self.send(writer, Output::Stderr).await?;
            // A task that writes without end wants its input all the same.
            if let Some(taken) = credit.as_mut().and_then(news) {
                writer.control(&ToHome::StdinTaken(taken)).await?;
            }
            if sent {
                continue;
            }
            writer.flush().await?;
            if let Some((outcome, at)) = end {
                return writer.control(&ToHome::Ended { outcome, at }).await;
            }
            if !self.follow {
                return writer.control(&ToHome::Enough).await;
            }
            tokio::select! {
                changed = totals.changed(), if totals_live => totals_live = changed.is_ok(),
                changed = ended.changed(), if ended_live => ended_live = changed.is_ok(),
                taken = next(&mut credit) => {
                    writer.control(&ToHome::StdinTaken(taken)).await?;
                }
            }
        }
    }

    /// Sends one piece of an output, if there is one.
    async fn send(&mut self, writer: &mut Writer, output: Output) -> Result<bool, StreamError> {
        let Some(offset) = self.next(output) else { return Ok(false) };
        let totals = *self.hosted.totals.borrow();
        let (reader, total) = match output {
            Output::Stdout => (&self.outputs.0, totals.stdout),
            Output::Stderr => (&self.outputs.1, totals.stderr),
        };
        if offset < total {
            self.buffer.resize(HEADROOM + PIECE, 0);
        }
        match reader.read(offset, total, self.buffer.get_mut(HEADROOM..).unwrap_or_default())? {
            Chunk::Empty => return Ok(false),
            Chunk::Data(len) => {
                let filled = &mut self.buffer[..HEADROOM + len];
                writer.output(output, offset, filled).await?;
                self.advance(output, offset + len as u64);
            }
            Chunk::Gap(to) => self.skip(writer, output, offset, to).await?,
            Chunk::Overtaken(to) => {
                let writes = self.hosted.ended.borrow().is_none();
                self.skip(writer, output, offset, resume(to, total, writes)).await?;
            }
        }
        Ok(true)
    }

    async fn skip(
        &mut self,
        writer: &mut Writer,
        output: Output,
        from: u64,
        to: u64,
    ) -> Result<(), StreamError> {
        writer.control(&ToHome::Gap { output, from, to }).await?;
        self.advance(output, to);
        Ok(())
    }

    fn next(&self, output: Output) -> Option<u64> {
        match output {
            Output::Stdout => self.wanted.0,
            Output::Stderr => self.wanted.1,
        }
    }

    fn advance(&mut self, output: Output, to: u64) {
        match output {
            Output::Stdout => self.wanted.0 = Some(to),
            Output::Stderr => self.wanted.1 = Some(to),
        }
    }
}

/// Where a reader goes on that was overtaken up to `to`. At the edge of what a task keeps writing
/// over it would get a few bytes and lose the next, again and again.
fn resume(to: u64, total: u64, writes: bool) -> u64 {
    if writes { to + total.saturating_sub(to) / LEAD } else { to }
}

/// News of how much input was taken, if there is any now.
fn news(credit: &mut watch::Receiver<u64>) -> Option<u64> {
    credit.has_changed().is_ok_and(|changed| changed).then(|| *credit.borrow_and_update())
}

/// News of how much input was taken.
async fn next(credit: &mut Option<watch::Receiver<u64>>) -> u64 {
    if let Some(taken) = credit
        && taken.changed().await.is_ok()
    {
        return *taken.borrow_and_update();
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user's screen filled with thousands of ranges of a few bytes each that were lost.
    #[test]
    fn a_reader_that_is_overtaken_gets_a_lead_and_loses_nothing_of_a_task_that_has_ended() {
        let (mut offset, mut total, mut gaps) = (0_u64, 0_u64, 0);
        while total < 1 << 30 {
            // Twice as fast as it is read; the last 64 MiB are kept.
            total += 2 << 16;
            let kept = total.saturating_sub(64 << 20);
            if kept > offset {
                offset = resume(kept, total, true);
                gaps += 1;
            }
            offset += 1 << 16;
        }
        assert!((2..130).contains(&gaps), "{gaps}");
        assert_eq!(resume(7, 70, false), 7);
        assert_eq!(resume(9, 8, true), 9);
    }
}
