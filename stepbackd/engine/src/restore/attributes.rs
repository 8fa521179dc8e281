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
