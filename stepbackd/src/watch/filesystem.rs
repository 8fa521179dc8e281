//! Which file systems tell of changes.

use std::collections::BTreeMap;
use std::path::Path;

/// Types of which no change is told that another machine, or the other side of it, makes. By their number in `statfs`.
///
/// An overlay isn't among them: what is changed through it is told. What is changed in one of its layers, behind its back,
/// isn't, and the kernel forbids that.
const SILENT: [(u64, &str); 18] = [
    (0x0000_6969, "NFS"),
    (0x0000_517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
    (0x00C3_6400, "Ceph"),
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "kAFS"),
    (0x7375_7245, "Coda"),
    (0x0BD0_0BD3, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x786F_4256, "a VirtualBox share"),
    (0xBACB_ACBC, "a VMware share"),
    (0x7C7C_6673, "a Parallels share"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
];

/// Which are polled: those listed here, and what the user's settings add.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Silent {
    more: [u64; MORE_MAX],
}

/// So many types can be added.
const MORE_MAX: usize = 8;

impl Silent {
    /// With `more` types, by their number.
    pub fn with(more: &[u64]) -> Self {
        let mut silent = Self::default();
        for (place, number) in silent.more.iter_mut().zip(more) {
            *place = *number;
        }
        silent
    }

    /// The name of the file system at `path` when it doesn't tell of every change. May wait for it.
    #[cfg(target_os = "linux")]
    pub fn kind(self, path: &Path) -> Option<&'static str> {
        // The numbers are 32 bits wide; the field is wider on most machines, and signed.
        let kind = nix::sys::statfs::statfs(path).ok()?.filesystem_type().0 as u32;
        self.named(u64::from(kind))
    }

    /// Not known here.
    #[cfg(not(target_os = "linux"))]
    pub const fn kind(self, _path: &Path) -> Option<&'static str> {
        None
    }

    fn named(self, kind: u64) -> Option<&'static str> {
        let listed = SILENT.iter().find(|(number, _)| *number == kind);
        let listed = listed.map(|(_, name)| *name);
        listed.or_else(|| (kind != 0 && self.more.contains(&kind)).then_some("it"))
    }
}

/// What was found of file systems, by device: asking for each directory would cost about what its watch does. For the time
/// between two looks at everything; a device's number may be another file system's later.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    by: Silent,
    found: BTreeMap<u64, Option<&'static str>>,
}

impl Kinds {
    /// What [`Silent::kind`] said of a directory on `device`; `None` when it wasn't asked yet.
    pub fn known(&self, by: Silent, device: u64) -> Option<Option<&'static str>> {
        (self.by == by)
            .then(|| self.found.get(&device).copied())
            .flatten()
    }

    /// It was asked.
    pub fn learnt(&mut self, by: Silent, device: u64, kind: Option<&'static str>) {
        if self.by != by {
            self.by = by;
            self.found.clear();
        }
        self.found.insert(device, kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_silent_and_local_ones_are_not() {
        for (kind, name) in [
            (0x6969, Some("NFS")),
            (0xFF53_4D42, Some("CIFS")),
            (0xFE53_4D42, Some("SMB2")),
            (0x0102_1997, Some("9p")),
            (0x6573_5546, Some("FUSE")),
            // ext4, btrfs, xfs, tmpfs, overlay, zfs, f2fs.
            (0xEF53, None),
            (0x9123_683E, None),
            (0x5846_5342, None),
            (0x0102_1994, None),
            (0x794C_7630, None),
            (0x2FC1_2FC1, None),
            (0xF2F5_2010, None),
        ] {
            assert_eq!(Silent::default().named(kind), name, "{kind:#x}");
        }
        let mut numbers: Vec<_> = SILENT.iter().map(|(number, _)| number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), SILENT.len());
    }

    #[test]
    fn each_device_is_asked_once_for_the_same_settings() {
        let (plain, more) = (Silent::default(), Silent::with(&[0x0102_1994]));
        let mut kinds = Kinds::default();
        assert_eq!(kinds.known(plain, 7), None);
        kinds.learnt(plain, 7, None);
        kinds.learnt(plain, 8, Some("NFS"));
        assert_eq!(
            (kinds.known(plain, 7), kinds.known(plain, 8)),
            (Some(None), Some(Some("NFS")))
        );
        assert_eq!((kinds.known(plain, 9), kinds.known(more, 7)), (None, None));
        kinds.learnt(more, 7, Some("it"));
        assert_eq!(
            (kinds.known(more, 7), kinds.known(more, 8)),
            (Some(Some("it")), None)
        );
    }

    #[test]
    fn the_settings_add_to_them() {
        let silent = Silent::with(&[0x0102_1994]);
        assert!(silent.named(0x0102_1994).is_some() && silent.named(0x6969).is_some());
        assert_eq!((silent.named(0xEF53), silent.named(0)), (None, None));
        assert_eq!(silent.kind(Path::new("/proc")), None, "a real one is asked");
    }
}
