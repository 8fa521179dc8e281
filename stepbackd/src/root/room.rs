//! What has to be given up so that there is room, and what people are told of that.

use stepback_engine::engine::{Budget, Usage};
use stepback_engine::store::RESERVE_BYTES;
use stepback_proto::Warning;

/// A limit is told of from here on, in percent.
const TOLD_FROM: u64 = 80;
/// Room is made down to this, in percent of a limit.
const ROOM_TO: u64 = 90;
/// Of what all stores may use, attached roots keep one part of so many whatever other stores hold.
const LIVE_SHARE: u64 = 4;

/// The largest file that the store could take in if it had nothing else, in bytes.
pub(super) fn most(usage: Usage, budget: &Budget) -> u64 {
    let others = usage.total.saturating_sub(usage.store);
    budget
        .store
        .min(budget.total.saturating_sub(others))
        .min((usage.free.saturating_add(usage.store)).saturating_sub(usage.floor))
        .saturating_sub(RESERVE_BYTES)
}

/// What the stores of attached roots, which have `live` bytes, have to come down by so that `wanted` bytes more have room
/// within what all may use. What others hold doesn't cost them more than all but their part of it.
pub(super) fn over_total(usage: Usage, budget: &Budget, wanted: u64, live: u64) -> u64 {
    if usage.total.saturating_add(wanted) < budget.total {
        return 0;
    }
    let to = (budget.total / 100 * ROOM_TO).min(budget.total.saturating_sub(wanted));
    let others = usage.total.saturating_sub(live);
    live.saturating_sub(to.saturating_sub(others).max(budget.total / LIVE_SHARE))
}

/// What the store has to come down to so that `wanted` bytes more have room, and those of attached roots, which have `live`
/// bytes, come down by `over`.
pub(super) fn target(usage: Usage, budget: &Budget, wanted: u64, (over, live): (u64, u64)) -> u64 {
    let part = |limit: u64| limit / 100 * ROOM_TO;
    // All give in proportion: that one root is at work now costs it no more than the others.
    let share = u128::from(over) * u128::from(usage.store);
    let share = share.div_ceil(u128::from(live.max(usage.store).max(1)));
    let share = u64::try_from(share).unwrap_or(u64::MAX);
    let short = usage.floor.saturating_add(wanted).saturating_sub(usage.free);
    part(budget.store)
        .min(budget.store.saturating_sub(wanted))
        .min(usage.store.saturating_sub(share))
        .min(usage.store.saturating_sub(short))
}

/// What people should know of the use of disk.
pub(super) fn warnings(usage: Usage, budget: &Budget, refused: usize) -> Vec<Warning> {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let mut said = Vec::new();
    for (who, they, used, limit, setting) in [
        ("the store uses", "it", usage.store, budget.store, "store"),
        ("all stores use", "they", usage.total, budget.total, "total"),
    ] {
        if !is_near(used, limit) {
            continue;
        }
        let consequence = match used >= limit {
            true => ": new contents are left out, but for small changes",
            false => "",
        };
        said.push(Warning {
            kind: "quota".into(),
            message: format!(
                "{who} {} MiB of the {} MiB that {they} may use{consequence}",
                mib(used),
                mib(limit)
            ),
            hint: format!(
                "`stepback drop` and `stepback prune` give space back (unpin what isn't needed), `{setting}` in \
                 [quota] allows more"
            ),
        });
    }
    if usage.free < usage.floor {
        said.push(Warning {
            kind: "quota".into(),
            message: format!(
                "{} MiB are free where the store is, less than the {} MiB that stay free: new contents are left out \
                 (`stepback save` takes small ones)",
                usage.free >> 20,
                mib(usage.floor)
            ),
            hint: "free some space on that file system, or set `free` in [quota]".into(),
        });
    }
    if refused > 0 && said.is_empty() {
        let disk = usage.free.saturating_sub(usage.floor);
        let allowed = budget
            .store
            .saturating_sub(usage.store)
            .min(budget.total.saturating_sub(usage.total));
        let more = match disk < allowed {
            true => "free some space on the file system of the store",
            false => "`store` in [quota] allows more",
        };
        said.push(Warning {
            kind: "quota".into(),
            message: match refused {
                1 => "1 file is left out: it is larger than the room that the store has left".into(),
                n => format!("{n} files are left out: they are larger than the room that the store has left"),
            },
            hint: format!("{more}; an ignore rule says that they needn't be kept"),
        });
    }
    said
}

/// Whether a limit is near enough to be told of.
pub(super) fn is_near(used: u64, limit: u64) -> bool {
    used / TOLD_FROM >= limit / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget {
        store: 1_000 << 20,
        total: 2_000 << 20,
        free: 100 << 20,
        files: 1,
    };

    fn usage(store: u64, total: u64, free: u64) -> Usage {
        Usage {
            store: store << 20,
            total: total << 20,
            free: free << 20,
            floor: 100 << 20,
        }
    }

    #[test]
    fn limits_are_told_of_from_80_percent_on() {
        let told = |store, total, free| warnings(usage(store, total, free), &BUDGET, 0).len();
        assert_eq!(told(799, 799, 5_000), 0);
        assert_eq!(told(801, 801, 5_000), 1);
        assert_eq!(told(801, 1_601, 5_000), 2);
        assert_eq!(told(10, 10, 99), 1);
        let hint = |free| warnings(usage(1, 1, free), &BUDGET, 2).remove(0).hint;
        assert!(hint(500).starts_with("free some space"), "{}", hint(500));
        assert!(hint(50_000).starts_with("`store` in [quota]"));
        let no_limit = Budget::default();
        assert!(warnings(usage(801, 801, 5_000), &no_limit, 0).is_empty());
    }

    #[test]
    fn what_has_no_room_in_an_empty_store_is_not_waited_for() {
        let most = |usage| most(usage, &BUDGET) >> 20;
        assert_eq!(most(usage(1_000, 1_000, 5_000)), 1_000 - 4);
        assert_eq!(most(usage(500, 2_000, 5_000)), 500 - 4);
        assert_eq!(most(usage(500, 500, 60)), 460 - 4);
        assert_eq!(most(usage(0, 2_000, 60)), 0);
    }

    #[test]
    fn room_is_made_for_what_is_wanted() {
        let to = |usage, wanted: u32| {
            let wanted = u64::from(wanted) << 20;
            let over = over_total(usage, &BUDGET, wanted, usage.total);
            target(usage, &BUDGET, wanted, (over, usage.total)).div_ceil(1 << 20)
        };
        assert_eq!(to(usage(1_000, 1_000, 5_000), 0), 900);
        assert_eq!(to(usage(1_000, 1_000, 5_000), 300), 700);
        // Of 200 too many in all, this store's share.
        assert_eq!(to(usage(500, 2_000, 5_000), 0), 450);
        assert_eq!(to(usage(500, 1_900, 5_000), 400), 500 - 78);
        assert_eq!(to(usage(500, 1_900, 5_000), 0), 500);
        assert_eq!(to(usage(500, 500, 60), 10), 450);
    }
    #[test]
    fn what_others_hold_does_not_cost_attached_roots_their_part() {
        let over = |live: u64, total| over_total(usage(live, total, 5_000), &BUDGET, 0, live << 20) >> 20;
        // 1,800 are aimed at; a quarter of 2,000 is theirs in any case.
        assert_eq!(over(2_000, 2_000), 200);
        assert_eq!(over(1_000, 2_000), 200);
        assert_eq!(over(600, 2_000), 100);
        assert_eq!(over(400, 2_400), 0);
        assert_eq!(over(900, 1_900), 0);
    }

    #[test]
    fn what_is_said_is_what_happens() {
        let told = |store, free| warnings(usage(store, store, free), &BUDGET, 0)[0].message.clone();
        assert!(!told(900, 5_000).contains("left out"));
        assert!(told(1_000, 5_000).ends_with("but for small changes"));
        assert!(told(10, 90).contains("stay free: new contents are left out"));
    }
}
