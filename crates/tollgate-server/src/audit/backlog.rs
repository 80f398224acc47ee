//! Rows that wait to be written, in order, with a bound; and the batch that is on its way.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::database::ViolationRow;

/// Rows with the numbers under which they are written, however often they are sent.
pub(super) type Batch = Arc<[(i64, ViolationRow)]>;

/// What waits. Whoever comes when it is full is lost: what came first shows how it began.
#[derive(Default)]
pub(super) struct Backlog {
    waiting: VecDeque<(i64, ViolationRow)>,
    /// Sent, perhaps even stored: it goes again until somebody says that it arrived.
    sending: Option<Batch>,
    next_number: i64,
    pub(super) written: u64,
    pub(super) rows: u64,
    pub(super) lost: u64,
    pub(super) failures: u64,
    /// Folds that became one with another lane's.
    pub(super) merged: u64,
}

impl Backlog {
    pub(super) fn accept(&mut self, mut row: ViolationRow, scope: &str, most: usize) {
        if self.len() >= most {
            self.lost += count_of(&row);
            return;
        }
        scope.clone_into(&mut row.scope);
        self.waiting.push_back((self.next_number, row));
        self.next_number += 1;
    }

    /// What to send next; the same until it is [`arrived`](Self::arrived) or [`refused`](Self::refused).
    pub(super) fn batch(&mut self, most: usize) -> Option<Batch> {
        if self.sending.is_none() && !self.waiting.is_empty() {
            let rows = self.waiting.len().min(most.max(1));
            self.sending = Some(self.waiting.drain(..rows).collect());
        }
        self.sending.clone()
    }

    pub(super) fn arrived(&mut self) {
        if let Some(batch) = self.sending.take() {
            self.written += counts_of(&batch);
            self.rows += batch.len() as u64;
        }
    }

    /// The database will never take it as it is. Half of it goes next, so that in the end only those are lost that are at fault: nobody
    /// may take others out of the trail by a name that the database does not take.
    pub(super) fn refused(&mut self) {
        match self.sending.take() {
            Some(batch) if batch.len() > 1 => {
                let (first, second) = batch.split_at(batch.len() / 2);
                for row in second.iter().rev() {
                    self.waiting.push_front(row.clone());
                }
                self.sending = Some(first.into());
            }
            batch => {
                self.sending = batch;
                self.lose_batch();
            }
        }
    }

    fn lose_batch(&mut self) {
        if let Some(batch) = self.sending.take() {
            self.lost += counts_of(&batch);
        }
    }

    /// There is no time left.
    pub(super) fn give_up(&mut self) {
        self.lose_batch();
        let waiting = std::mem::take(&mut self.waiting);
        self.lost += waiting.iter().map(|(_, row)| count_of(row)).sum::<u64>();
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.sending.as_ref().map_or(0, |batch| batch.len())
    }
}

fn counts_of(batch: &Batch) -> u64 {
    batch.iter().map(|(_, row)| count_of(row)).sum()
}

fn count_of(row: &ViolationRow) -> u64 {
    row.count.unsigned_abs()
}
