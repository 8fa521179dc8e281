//! Memory that was freed goes back to the system. The C library keeps what lies between blocks that are still in use,
//! for each of many arenas: after the first capture of 100,000 files, or a rewind of 10,000, that is more than all that
//! the daemon has in use.
//!
//! The only file with unsafe code: the C library's two calls for this have no safe form anywhere. They take and return
//! plain numbers, and may be made at any time, from any thread.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "see above")]
mod allocator {
    use nix::libc;

    /// To be called before there are other threads. One arena: threads have small caches of their own, and spend their
    /// time in the kernel and in hashing.
    pub fn settle() {
        // SAFETY: it takes two numbers; what it refuses stays as it was.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }

    pub fn give_back() {
        // SAFETY: it takes a number, and locks the arena that it works on.
        unsafe { libc::malloc_trim(0) };
    }
}

/// Elsewhere allocators give memory back by themselves, or have no such call.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod allocator {
    pub const fn settle() {}
    pub const fn give_back() {}
}

pub use allocator::{give_back, settle};
