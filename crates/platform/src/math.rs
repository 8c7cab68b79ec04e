//! The functions of libm that the program uses, under their names of C. Loading the library for
//! them takes half a megabyte of the memory of an idle server.
//!
//! Their values are within one unit in the last place, as libm's; `log2` of a power of two is
//! exact, as Go's.

/// `x` to the power of `y`.
// SAFETY: it does what C's does, by the same types.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C" fn pow(x: f64, y: f64) -> f64 {
    libm::pow(x, y)
}

/// The natural logarithm.
// SAFETY: as above.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C" fn log(x: f64) -> f64 {
    libm::log(x)
}

/// The logarithm to base 2.
// SAFETY: as above.
#[allow(unsafe_code)]
#[unsafe(no_mangle)]
extern "C" fn log2(x: f64) -> f64 {
    libm::log2(x)
}

#[cfg(test)]
mod tests {
    #[test]
    fn functions_have_the_values_of_libm() {
        for power in -1022..1024 {
            let number = 2_f64.powi(power);
            assert_eq!(super::log2(number), f64::from(power));
        }
        // Printed by a program in C with glibc 2.36.
        for (base, exponent, power, natural, binary) in VALUES {
            let close = |found: f64, expected: f64| {
                assert!(
                    (found / expected - 1.0).abs() <= f64::EPSILON,
                    "{base}: {found} {expected}"
                );
            };
            close(super::pow(base, exponent), power);
            close(super::log(base), natural);
            close(super::log2(base), binary);
        }
        assert_eq!((super::pow(0.0, 0.0), super::log(0.0)), (1.0, f64::NEG_INFINITY));
        assert!(super::log(-1.0).is_nan() && super::pow(-2.0, 0.5).is_nan());
    }

    /// A number, an exponent, the power, and the logarithms of the number.
    const VALUES: [(f64, f64, f64, f64, f64); 4] = [
        (0.9, 17.0, 0.16677181699666577, -0.10536051565782628, -0.15200309344504995),
        (3.7, 2.5, 26.333240780428074, 1.308332819650179, 1.8875252707415875),
        (1e-300, 0.5, 1e-150, -690.7755278982137, -996.5784284662087),
        (12345.678, -3.25, 5.041693349603785e-14, 9.421061321291832, 13.59171844813855),
    ];
}
