//! The allocator of the program: mimalloc, set so that freed memory goes back to the system soon.
//!
//! mimalloc keeps what is freed for a second. A few clients that make the server allocate and free
//! megabytes at once (responses of webhooks, large objects) thus took three times the memory in
//! use.

use libmimalloc_sys::{mi_collect, mi_option_set_default, mi_option_t};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of mimalloc's option `purge_delay`, in milliseconds (`mi_option_e` of `mimalloc.h`, which
/// the crate does not name). The versions 2 and 3 have it at the same place.
const PURGE_DELAY: mi_option_t = 15;
/// How long freed memory is kept. A thread that has nothing to do gives nothing back, so that many
/// of them kept what they had freed in their last 10 ms. Shorter takes time: an update of 900 KB
/// takes 5.7 ms of processor time, 4.3 with 10 ms; smaller objects take the same.
const KEPT_MS: i64 = 1;

/// Makes freed memory go back soon from now on, unless `MIMALLOC_PURGE_DELAY` is in the
/// environment. For a server that has started: what it loads frees memory and takes it again all
/// the time, which took a fifth more processor time with 100,000 objects.
pub fn give_back_soon() {
    // SAFETY: it writes one word of a static array, which has that index. mimalloc lets a program
    // change options while its threads read them, each by one load of the word.
    #[allow(unsafe_code)]
    unsafe {
        mi_option_set_default(PURGE_DELAY, KEPT_MS);
    }
}

/// Gives back what the thread that calls it has freed, and what others freed of it.
pub fn give_back_now() {
    // SAFETY: any thread may call it at any time.
    #[allow(unsafe_code)]
    unsafe {
        mi_collect(true);
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
