//! Rows that wait to be written, in order and bounded, and the batch that is being written.

use std::collections::VecDeque;
use std::sync::Arc;

use super::TrailStats;
use crate::database::ViolationRow;

/// Rows with their numbers, which stay the same however often they are sent.
pub(super) type Batch = Arc<[(i64, ViolationRow)]>;

/// The rows that wait. When it is full, later rows are lost, because the first show how it began.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    waiting: VecDeque<(i64, ViolationRow)>,
    /// Sent, and perhaps stored. It is sent again until the database has confirmed it.
    sending: Option<Batch>,
    next_number: i64,
    pub(super) stats: TrailStats,
}

impl Backlog {
    pub(super) fn push(&mut self, row: ViolationRow, max: usize) {
        if self.len() >= max {
            self.stats.lost += row.count.unsigned_abs();
            return;
        }
        self.waiting.push_back((self.next_number, row));
        self.next_number += 1;
    }

    /// The next batch to send: the same one until it is [`confirmed`](Self::confirmed) or [`rejected`](Self::rejected).
    pub(super) fn batch(&mut self, max: usize) -> Option<Batch> {
        if self.sending.is_none() && !self.waiting.is_empty() {
            let rows = self.waiting.len().min(max.max(1));
            self.sending = Some(self.waiting.drain(..rows).collect());
        }
        self.sending.clone()
    }

    pub(super) fn confirmed(&mut self) {
        if let Some(batch) = self.sending.take() {
            self.stats.written += denials(&*batch);
            self.stats.rows += batch.len() as u64;
        }
    }

    /// The database will never accept the batch as it is. Half of it is sent next, so that only the rows at fault are lost in the end: a
    /// client must not be able to remove others from the trail by a name that the database rejects.
    pub(super) fn rejected(&mut self) {
        match self.sending.take() {
            Some(batch) if batch.len() > 1 => {
                let (first, second) = batch.split_at(batch.len() / 2);
                for row in second.iter().rev() {
                    self.waiting.push_front(row.clone());
                }
                self.sending = Some(first.into());
            }
            batch => self.stats.lost += batch.map_or(0, |batch| denials(&*batch)),
        }
    }

    /// Loses everything, because there is no time left.
    pub(super) fn give_up(&mut self) {
        let sending = self.sending.take();
        self.stats.lost += sending.map_or(0, |batch| denials(&*batch));
        self.stats.lost += denials(&std::mem::take(&mut self.waiting));
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.sending.as_ref().map_or(0, |batch| batch.len())
    }
}

fn denials<'a>(rows: impl IntoIterator<Item = &'a (i64, ViolationRow)>) -> u64 {
    let rows = rows.into_iter();
    rows.map(|(_, row)| row.count.unsigned_abs()).sum()
}
