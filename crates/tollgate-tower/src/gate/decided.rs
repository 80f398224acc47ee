//! What handlers see of the limits.

use std::ops::Deref;
use std::sync::Arc;

use tollgate::Decision;

/// The decision that let a request pass, among its extensions, shadows included.
///
/// ```
/// use axum::Extension;
/// use tollgate_tower::layer::Decided;
///
/// async fn handler(Extension(decided): Extension<Decided>) -> String {
///     format!("{:?} left", decided.remaining())
/// }
/// # let _ = handler;
/// ```
#[derive(Clone, Debug)]
pub struct Decided(Arc<Decision>);

impl Decided {
    pub(super) fn new(decision: Decision) -> Self {
        Self(Arc::new(decision))
    }
}

impl Deref for Decided {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.0
    }
}
