//! Which checkpoints go with time. Pure: the checkpoints, the moment, the policy and what is protected decide.
//!
//! Age is divided into spans. In the youngest everything is kept; in each later one the newest checkpoint of every minute,
//! hour, day or week (UTC). A longer slot is made of whole shorter ones, so that what a later span keeps was kept by the
//! earlier ones. What is protected stays in any case and doesn't count against the others.

use std::collections::{BTreeMap, BTreeSet};

use crate::checkpoint::{Checkpoint, Trigger};
use crate::time::Time;

const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const WEEK: i64 = 7 * DAY;

/// Starts and ends of sessions are kept so long.
const SESSION_KEPT: i64 = 90 * DAY;
/// Starts and ends of agents' turns.
const TURN_KEPT: i64 = 7 * DAY;
/// What was saved before an operation or a command.
const BEFORE_KEPT: i64 = DAY;

/// How long what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// All of the last so many hours.
    pub all_hours: u32,
    /// One a minute, up to so many hours of age.
    pub minutely_hours: u32,
    /// One an hour, up to so many days of age.
    pub hourly_days: u32,
    /// One a day, up to so many days of age; one a week beyond.
    pub daily_days: u32,
    /// The newest so many, whatever their age.
    pub newest: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            all_hours: 1,
            minutely_hours: 24,
            hourly_days: 7,
            daily_days: 30,
            newest: 50,
        }
    }
}

/// What is looked at of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub n: u64,
    /// When it was made.
    pub time: Time,
    /// Why.
    pub trigger: Trigger,
    /// It has a label.
    pub named: bool,
}

impl From<&Checkpoint> for Candidate {
    fn from(checkpoint: &Checkpoint) -> Self {
        Self {
            n: checkpoint.n,
            time: checkpoint.time,
            trigger: checkpoint.trigger,
            named: checkpoint.label.is_some(),
        }
    }
}

impl Candidate {
    /// How long it is kept for what it is, in nanoseconds; 0 when only its age and its neighbours decide.
    const fn kept_for(&self) -> i64 {
        if self.named {
            return i64::MAX;
        }
        match self.trigger {
            Trigger::SessionStart | Trigger::SessionEnd => SESSION_KEPT,
            Trigger::TurnStart | Trigger::TurnEnd => TURN_KEPT,
            Trigger::BeforeRewind
            | Trigger::BeforeRestore
            | Trigger::BeforeRedo
            | Trigger::BeforeRevert
            | Trigger::BeforeCommand => BEFORE_KEPT,
            Trigger::Attach
            | Trigger::Auto
            | Trigger::Save
            | Trigger::AfterOperation
            | Trigger::Reconcile => 0,
        }
    }
}

impl Policy {
    /// The slot that a checkpoint of this age (both in nanoseconds) competes in: its length and its number. `None` in the
    /// span where all are kept.
    fn slot(&self, age: i64, time: Time) -> Option<(i64, i64)> {
        let up_to = |count: u32, unit: i64| i64::from(count).saturating_mul(unit);
        let length = if age < up_to(self.all_hours, HOUR) {
            return None;
        } else if age < up_to(self.minutely_hours, HOUR) {
            MINUTE
        } else if age < up_to(self.hourly_days, DAY) {
            HOUR
        } else if age < up_to(self.daily_days, DAY) {
            DAY
        } else {
            WEEK
        };
        Some((length, time.0.div_euclid(length)))
    }
}

/// What stays whatever the policy says: by what it is, by its place among the newest, or by `protected`.
#[must_use]
pub fn kept_anyway(
    checkpoints: &[Candidate],
    now: Time,
    policy: &Policy,
    protected: &BTreeSet<u64>,
) -> BTreeSet<u64> {
    let mut numbers: Vec<u64> = checkpoints.iter().map(|c| c.n).collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    let newest = usize::try_from(policy.newest).unwrap_or(usize::MAX);
    let mut kept: BTreeSet<u64> = numbers.into_iter().take(newest).collect();
    let by_itself = |c: &&Candidate| {
        let kept_for = c.kept_for();
        kept_for == i64::MAX || now.0.saturating_sub(c.time.0) < kept_for || protected.contains(&c.n)
    };
    kept.extend(checkpoints.iter().filter(by_itself).map(|c| c.n));
    kept
}

/// The checkpoints that go now, by number. The order of `checkpoints` doesn't matter.
#[must_use]
pub fn thin(
    checkpoints: &[Candidate],
    now: Time,
    policy: &Policy,
    protected: &BTreeSet<u64>,
) -> BTreeSet<u64> {
    let kept = kept_anyway(checkpoints, now, policy, protected);
    let mut slots: BTreeMap<(i64, i64), (Time, u64)> = BTreeMap::new();
    let slot = |c: &Candidate| policy.slot(now.0.saturating_sub(c.time.0), c.time);
    for c in checkpoints {
        if let Some(slot) = slot(c) {
            let best = slots.entry(slot).or_insert((c.time, c.n));
            *best = (*best).max((c.time, c.n));
        }
    }
    let goes = |c: &&Candidate| {
        let newest_of_slot = slot(c).is_none_or(|slot| slots[&slot].1 == c.n);
        !newest_of_slot && !kept.contains(&c.n)
    };
    checkpoints.iter().filter(goes).map(|c| c.n).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 20_000 * DAY + 5 * HOUR + 30 * MINUTE + 30 * SECOND;

    fn at(age: i64) -> Time {
        Time(NOW - age)
    }

    /// Numbered from 1, oldest first.
    fn candidates(ages: &[i64], trigger: Trigger) -> Vec<Candidate> {
        let mut ages = ages.to_vec();
        ages.sort_unstable_by(|a, b| b.cmp(a));
        (1..)
            .zip(ages)
            .map(|(n, age)| Candidate {
                n,
                time: at(age),
                trigger,
                named: false,
            })
            .collect()
    }

    fn few() -> Policy {
        Policy {
            newest: 1,
            ..Policy::default()
        }
    }

    #[test]
    fn a_table_of_ages() {
        // Two checkpoints so far apart, at this age of the younger: whether both stay.
        for (age, apart, both) in [
            (0, SECOND, true),
            (59 * MINUTE, 10 * SECOND, true),
            (2 * HOUR + 40 * SECOND, 10 * SECOND, false),
            (2 * HOUR, MINUTE, true),
            (23 * HOUR, MINUTE, true),
            (25 * HOUR, MINUTE, false),
            (25 * HOUR, HOUR, true),
            (6 * DAY, HOUR, true),
            (8 * DAY, HOUR, false),
            (8 * DAY, DAY, true),
            (29 * DAY, DAY, true),
            (40 * DAY, DAY, false),
            (40 * DAY, WEEK, true),
            (4_000 * DAY, WEEK, true),
        ] {
            let list = candidates(&[0, age, age + apart], Trigger::Auto);
            let gone = thin(&list, Time(NOW), &few(), &BTreeSet::new());
            let expected = if both {
                BTreeSet::new()
            } else {
                BTreeSet::from([1])
            };
            assert_eq!(gone, expected, "age {age}, apart {apart}");
        }
    }

    #[test]
    fn what_is_kept_for_what_it_is() {
        for (trigger, days) in [
            (Trigger::SessionStart, 90),
            (Trigger::SessionEnd, 90),
            (Trigger::TurnEnd, 7),
            (Trigger::BeforeRewind, 1),
            (Trigger::BeforeCommand, 1),
        ] {
            for (age, stays) in [(days * DAY - SECOND, true), (days * DAY + 40 * SECOND, false)] {
                let mut list = candidates(&[age + 2 * SECOND, age + SECOND, age, 0], Trigger::Auto);
                list[0].trigger = trigger;
                list[0].time = at(age);
                list[1].time = Time(at(age).0 + 1);
                list[2].time = Time(at(age).0 + 2);
                let gone = thin(&list, Time(NOW), &few(), &BTreeSet::new());
                assert_eq!(!gone.contains(&1), stays, "{trigger:?} at {age}");
            }
        }
        let mut list = candidates(&[400 * DAY, 400 * DAY, 0], Trigger::Save);
        list[0].named = true;
        assert_eq!(thin(&list, Time(NOW), &few(), &BTreeSet::new()), BTreeSet::new());
    }

    #[test]
    fn a_clock_that_was_set_back_costs_nothing() {
        let list = candidates(&[-HOUR, -2 * HOUR, -HOUR + 1], Trigger::Auto);
        assert!(thin(&list, Time(NOW), &few(), &BTreeSet::new()).is_empty());
    }

    fn any_trigger() -> impl Strategy<Value = Trigger> {
        prop::sample::select(vec![
            Trigger::Auto,
            Trigger::Auto,
            Trigger::Auto,
            Trigger::Save,
            Trigger::SessionStart,
            Trigger::TurnEnd,
            Trigger::BeforeRewind,
            Trigger::Reconcile,
        ])
    }

    fn any_list() -> impl Strategy<Value = Vec<Candidate>> {
        let age = prop_oneof![-HOUR..2 * HOUR, 0..2 * DAY, 0..40 * DAY, 0..800 * DAY];
        prop::collection::vec((age, any_trigger(), prop::bool::weighted(0.05)), 0..200).prop_map(|all| {
            (1..)
                .zip(all)
                .map(|(n, (age, trigger, named))| Candidate {
                    n,
                    time: at(age),
                    trigger,
                    named,
                })
                .collect()
        })
    }

    fn any_policy() -> impl Strategy<Value = Policy> {
        (0u32..3, 0u32..50, 0u32..10, 0u32..40, 0u32..60).prop_map(
            |(all_hours, minutely_hours, hourly_days, daily_days, newest)| Policy {
                all_hours,
                minutely_hours,
                hourly_days,
                daily_days,
                newest,
            },
        )
    }

    proptest! {
        #[test]
        fn nothing_protected_goes_and_twice_is_once(
            list in any_list(),
            policy in any_policy(),
            protected in prop::collection::btree_set(1u64..200, 0..20),
            seed in any::<u64>(),
        ) {
            let now = Time(NOW);
            let gone = thin(&list, now, &policy, &protected);
            let kept = kept_anyway(&list, now, &policy, &protected);
            prop_assert!(gone.is_disjoint(&protected));
            prop_assert!(gone.is_disjoint(&kept));
            for c in list.iter().filter(|c| c.named) {
                prop_assert!(!gone.contains(&c.n));
            }
            let rest: Vec<Candidate> = list.iter().filter(|c| !gone.contains(&c.n)).copied().collect();
            prop_assert!(rest.len() >= list.len().min(policy.newest as usize));
            prop_assert_eq!(thin(&rest, now, &policy, &protected), BTreeSet::new());
            let mut mixed = list.clone();
            mixed.sort_by_key(|c| c.n.wrapping_mul(seed | 1));
            prop_assert_eq!(thin(&mixed, now, &policy, &protected), gone);
        }

        /// Thinning often on the way leaves what thinning once at the end does, but for what was among the newest.
        #[test]
        fn the_way_there_doesnt_matter(list in any_list(), steps in 1i64..20) {
            let policy = Policy { newest: 0, ..Policy::default() };
            let none = BTreeSet::new();
            let end = Time(NOW + 60 * DAY);
            let once: BTreeSet<u64> = {
                let gone = thin(&list, end, &policy, &none);
                list.iter().map(|c| c.n).filter(|n| !gone.contains(n)).collect()
            };
            let mut rest = list;
            for step in 0..=steps {
                let now = Time(NOW + 60 * DAY * step / steps);
                let gone = thin(&rest, now, &policy, &none);
                rest.retain(|c| !gone.contains(&c.n));
            }
            prop_assert_eq!(rest.iter().map(|c| c.n).collect::<BTreeSet<_>>(), once);
        }
    }
}
