//! Which roots keep their tree in memory: those that were used last. The others are told to give it back.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::root::mailbox::Mailbox;

/// The roots that have their tree in memory, the one that was used last at the end.
#[derive(Debug, Default)]
pub struct IdleTrees(Mutex<VecDeque<Weak<Mailbox>>>);

impl IdleTrees {
    /// The root of this mailbox has used its tree. `max` roots may keep theirs; those beyond are told.
    pub fn used(&self, mailbox: &Arc<Mailbox>, max: usize) {
        let mut roots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        roots.retain(|root| root.strong_count() > 0 && root.as_ptr() != Arc::as_ptr(mailbox));
        roots.push_back(Arc::downgrade(mailbox));
        let surplus = roots.len().saturating_sub(max);
        for root in roots.drain(..surplus) {
            if let Some(mailbox) = root.upgrade() {
                mailbox.rest();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_were_used_last_keep_theirs() {
        let trees = IdleTrees::default();
        let roots: Vec<Arc<Mailbox>> = (0..3).map(|_| Arc::default()).collect();
        let told = |root: usize| roots[root].take_rest();
        trees.used(&roots[0], 2);
        trees.used(&roots[1], 2);
        trees.used(&roots[0], 2);
        assert!(!told(0) && !told(1));
        trees.used(&roots[2], 2);
        assert!(!told(0) && told(1) && !told(2));
        trees.used(&roots[1], 0);
        assert!(told(0) && told(1) && told(2), "none may keep it");
        let gone = Arc::default();
        trees.used(&gone, 2);
        drop(gone);
        trees.used(&roots[0], 2);
        trees.used(&roots[1], 2);
        assert!(!told(0) && !told(1), "one that is gone takes no place");
    }
}
