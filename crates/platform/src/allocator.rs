//! The allocator of the program: mimalloc, set so that freed memory goes back to the system soon.
//!
//! mimalloc keeps what is freed for a second. A few clients that make the server allocate and free
//! megabytes at once (responses of webhooks, large objects) thus took three times the memory in
//! use.

use libmimalloc_sys::{mi_option_set_default, mi_option_t};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of mimalloc's option `purge_delay`, in milliseconds (`mi_option_e` of `mimalloc.h`, which
/// the crate does not name). The versions 2 and 3 have it at the same place.
const PURGE_DELAY: mi_option_t = 15;
/// How long freed memory is kept. A thread that has nothing to do gives nothing back, so that many
/// of them kept what they had freed in their last 10 ms. Shorter takes time: an update of 900 KB
/// takes 5.7 ms of processor time, 4.3 with 10 ms; smaller objects take the same.
const KEPT_MS: i64 = 1;

/// Makes freed memory go back soon, unless `MIMALLOC_PURGE_DELAY` is in the environment. For the
/// first thread of a program, before there are others.
pub fn give_back_soon() {
    // SAFETY: it writes one element of a static array, which has that index, and no other thread
    // calls it: see above.
    #[allow(unsafe_code)]
    unsafe {
        mi_option_set_default(PURGE_DELAY, KEPT_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libmimalloc_sys::mi_option_get;

    #[test]
    fn the_option_is_that_of_the_delay() {
        // SAFETY: no other test changes options.
        #[allow(unsafe_code)]
        let value = || unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(value(), 1000, "mimalloc's default");
        give_back_soon();
        assert_eq!(value(), KEPT_MS);
    }
}
