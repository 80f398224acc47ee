//! Waiting for somebody who will be done in a moment.

/// Pauses at first, as a slot is held for less than a tenth of a microsecond, and without looking, as every look takes the
/// cache line away from the one who holds it. Then lets others run, as that one may have been interrupted; at last
/// sleeps, so that nobody is kept from running by those who wait for it.
#[derive(Debug, Default)]
pub(super) struct Patience {
    waited: u32,
}

const PAUSES: u32 = 6;
const YIELDS: u32 = 20;

impl Patience {
    #[cfg(not(tollgate_loom))]
    #[cold]
    pub(super) fn wait(&mut self) {
        match self.waited {
            few if few < PAUSES => (0..1 << few).for_each(|_| std::hint::spin_loop()),
            more if more < YIELDS => std::thread::yield_now(),
            _ => std::thread::sleep(std::time::Duration::from_micros(50)),
        }
        self.waited = self.waited.saturating_add(1);
    }

    #[cfg(tollgate_loom)]
    pub(super) fn wait(&mut self) {
        self.waited = self.waited.saturating_add(PAUSES + YIELDS);
        loom::thread::yield_now();
    }
}
