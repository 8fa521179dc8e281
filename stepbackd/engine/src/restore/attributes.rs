//! Extended attributes of open files: those that are captured (`user.*`, ACLs) and the others.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use nix::errno::Errno;
use xattr::FileExt;

use crate::fault;
use crate::node::Attributes;

const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
const DEFAULT_ACL: &[u8] = b"system.posix_acl_default";

fn is_captured(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name == ACCESS_ACL || name == DEFAULT_ACL
}

/// The file system has no attributes, or this one is not for us.
fn is_unsupported(error: &io::Error) -> bool {
    [Errno::ENOTSUP as i32, Errno::ENOSYS as i32].contains(&error.raw_os_error().unwrap_or(0))
}

fn names(file: &File) -> io::Result<Vec<Vec<u8>>> {
    match file.list_xattr() {
        Ok(names) => Ok(names.map(|name| name.as_bytes().to_vec()).collect()),
        Err(error) if is_unsupported(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn name_of(bytes: &[u8]) -> &std::ffi::OsStr {
    std::ffi::OsStr::from_bytes(bytes)
}

/// Those that are captured.
pub(super) fn read(file: &File) -> io::Result<Attributes> {
    let mut found = BTreeMap::new();
    for name in names(file)?.into_iter().filter(|name| is_captured(name)) {
        if let Some(value) = file.get_xattr(name_of(&name))? {
            found.insert(name, value);
        }
    }
    Ok((!found.is_empty()).then(|| Arc::new(found)))
}

/// Whether both are the same, but for what the permission bits say as well: whoever sets those sets it in an access ACL, too.
pub(super) fn are_same_but_for_bits(a: &Attributes, b: &Attributes) -> bool {
    let plain = |attributes: &Attributes| {
        let mut plain = attributes.as_deref().cloned().unwrap_or_default();
        plain
            .entry(ACCESS_ACL.to_vec())
            .and_modify(|acl| without_bits(acl));
        plain
    };
    a == b || plain(a) == plain(b)
}

/// Clears what an access ACL grants to owner and others, and its mask, which are the permission bits. Its form is that of
/// `posix_acl_xattr.h` in Linux: a version of four bytes, then for each entry tag (2), permissions (2) and id (4), little-endian.
fn without_bits(acl: &mut [u8]) {
    const VERSION: &[u8] = &[2, 0, 0, 0];
    const USER_OBJ: u16 = 0x01;
    const MASK: u16 = 0x10;
    const OTHER: u16 = 0x20;
    let Some((VERSION, entries)) = acl
        .split_at_mut_checked(4)
        .map(|(version, rest)| (&*version, rest))
    else {
        return;
    };
    for entry in entries.chunks_exact_mut(8) {
        if [USER_OBJ, MASK, OTHER].contains(&u16::from_le_bytes([entry[0], entry[1]])) {
            entry[2..4].fill(0);
        }
    }
}

/// Makes those that are captured be `wanted`. Returns the names that the file system doesn't take.
pub(super) fn write(point: &'static str, file: &File, wanted: &Attributes) -> io::Result<Vec<Vec<u8>>> {
    let present = read(file)?;
    if present == *wanted {
        return Ok(Vec::new());
    }
    fault::point(point)?;
    let none = BTreeMap::new();
    let present = present.as_deref().unwrap_or(&none);
    let wanted = wanted.as_deref().unwrap_or(&none);
    for name in present.keys().filter(|name| !wanted.contains_key(*name)) {
        file.remove_xattr(name_of(name))?;
    }
    let mut refused = Vec::new();
    for (name, value) in wanted
        .iter()
        .filter(|(name, value)| present.get(*name) != Some(value))
    {
        match file.set_xattr(name_of(name), value) {
            Ok(()) => {}
            Err(error) if is_unsupported(&error) || error.kind() == io::ErrorKind::PermissionDenied => {
                refused.push(name.clone());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}

/// Gives `new` what `old` has besides: security labels and the like, as far as the system lets us.
pub(super) fn copy_others(point: &'static str, old: &File, new: &File) -> io::Result<()> {
    fault::point(point)?;
    let Ok(names) = names(old) else { return Ok(()) };
    for name in names.into_iter().filter(|name| !is_captured(name)) {
        if let Ok(Some(value)) = old.get_xattr(name_of(&name)) {
            // Best effort: most of these are for root, or set by the kernel.
            let _ = new.set_xattr(name_of(&name), &value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_acl(owner: u8, user: u8, mask: u8, others: u8) -> Attributes {
        let mut acl = vec![2, 0, 0, 0];
        for (tag, bits) in [
            (0x01, owner),
            (0x02, user),
            (0x04, 5),
            (0x10, mask),
            (0x20, others),
        ] {
            acl.extend([tag, 0, bits, 0, 9, 0, 0, 0]);
        }
        let all = BTreeMap::from([(ACCESS_ACL.to_vec(), acl), (b"user.a".to_vec(), b"1".to_vec())]);
        Some(Arc::new(all))
    }

    #[test]
    fn an_acl_is_compared_but_for_what_the_bits_say() {
        let acl = with_acl(7, 7, 7, 0);
        assert!(are_same_but_for_bits(&acl, &acl));
        assert!(are_same_but_for_bits(&acl, &with_acl(5, 7, 5, 5)));
        assert!(!are_same_but_for_bits(&acl, &with_acl(7, 6, 7, 0)));
        assert!(!are_same_but_for_bits(&acl, &None));
        assert!(are_same_but_for_bits(&None, &None));
    }

    #[test]
    fn an_acl_of_an_unknown_form_is_compared_whole() {
        let of = |value: &[u8]| Some(Arc::new(BTreeMap::from([(ACCESS_ACL.to_vec(), value.to_vec())])));
        assert!(!are_same_but_for_bits(
            &of(b"\x03\0\0\0\x01\0\x07\0\0\0\0\0"),
            &of(b"\x03\0\0\0\x01\0\x05\0\0\0\0\0")
        ));
        assert!(!are_same_but_for_bits(&of(b"\x02"), &of(b"")));
    }
}
