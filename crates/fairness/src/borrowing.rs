//! How the seats of the server are divided between the levels: nominally by shares, and every
//! period by demand, within the bounds to which levels lend and borrow.

/// The limits of a level by its configuration, in seats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Its share of the server.
    pub nominal: u32,
    /// What it has even when it has lent all that it lends.
    pub lower: u32,
    /// What it has when it has borrowed all that it may.
    pub upper: u32,
}

impl Limits {
    /// Returns the limits of a level with some of all shares. A level without `borrowed_percent`
    /// may borrow the whole server; an exempt level is never limited, so its upper limit is the
    /// server.
    pub fn new(
        server: u32,
        shares: (u32, u64),
        lent_percent: u32,
        borrowed_percent: Option<u32>,
        is_exempt: bool,
    ) -> Limits {
        let (own, all) = shares;
        let nominal = (f64::from(server) * f64::from(own) / all.max(1) as f64).ceil() as u32;
        let part = |percent: u32| (f64::from(nominal) * f64::from(percent) / 100.0).round() as u32;
        let upper = match borrowed_percent {
            _ if is_exempt => server,
            None => nominal.saturating_add(server),
            Some(percent) => nominal.saturating_add(part(percent)),
        };
        Limits { nominal, lower: nominal.saturating_sub(part(lent_percent)), upper }
    }
}

/// What a level wants and may have, in seats.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// What it would use.
    pub target: f64,
    /// The least.
    pub lower: f64,
    /// The most.
    pub upper: f64,
}

impl Claim {
    /// Returns the claim of a level for the next period. It keeps what it has used in the last one,
    /// within its nominal limit.
    pub fn new(limits: Limits, highest: f64, smoothed: f64, is_exempt: bool) -> Claim {
        let used = if is_exempt { highest } else { highest.min(f64::from(limits.nominal)) };
        let lower = used.max(f64::from(limits.lower));
        Claim { target: lower.max(smoothed), lower, upper: f64::from(limits.upper).max(lower) }
    }

    fn at(&self, fraction: f64) -> f64 {
        // A level without demand still gets its part of seats that nobody wants.
        (fraction * self.target.max(0.001)).clamp(self.lower, self.upper)
    }
}

/// Divides the seats: all levels get the same fraction of their targets, within their bounds.
/// Returns the seats of each level and the fraction. Levels that want nothing less than the server
/// get their least.
pub fn allocate(server: u32, claims: &[Claim]) -> (Vec<f64>, f64) {
    let total = |fraction: f64| claims.iter().map(|claim| claim.at(fraction)).sum::<f64>();
    let seats = f64::from(server);
    let mut bounds = (0.0, 1.0);
    // The sum only rises with the fraction: enlarge it until it is enough or nobody takes more,
    // then halve.
    while total(bounds.1) < seats && bounds.1 < 1e9 {
        bounds = (bounds.1, bounds.1 * 2.0);
    }
    for _ in 0..64 {
        let middle = f64::midpoint(bounds.0, bounds.1);
        if total(middle) < seats { bounds.0 = middle } else { bounds.1 = middle }
    }
    let fraction = bounds.1;
    (claims.iter().map(|claim| claim.at(fraction)).collect(), fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limits that kube-apiserver has by default.
    #[test]
    fn shares_become_the_limits_of_kube_apiserver() {
        let check = |shares, lent, want| {
            let limits = Limits::new(600, (shares, 245), lent, None, false);
            assert_eq!((limits.nominal, limits.lower, limits.upper), want, "{shares}");
        };
        check(5, 0, (13, 13, 613));
        check(20, 50, (49, 24, 649));
        check(10, 0, (25, 25, 625));
        check(40, 25, (98, 73, 698));
        check(30, 33, (74, 50, 674));
        let exempt = Limits::new(600, (0, 245), 0, None, true);
        assert_eq!((exempt.nominal, exempt.lower, exempt.upper), (0, 0, 600));
        let bounded = Limits::new(100, (1, 2), 10, Some(20), false);
        assert_eq!((bounded.nominal, bounded.lower, bounded.upper), (50, 45, 60));
    }

    #[test]
    fn seats_follow_demand_within_the_bounds() {
        let claim = |target, lower, upper| Claim { target, lower, upper };
        let check = |claims: &[Claim], want: &[f64]| {
            let (seats, _) = allocate(100, claims);
            let near = seats.iter().zip(want).all(|(got, want)| (got - want).abs() < 0.01);
            assert!(near, "{claims:?}: {seats:?}");
        };
        check(&[claim(60.0, 10.0, 200.0), claim(20.0, 20.0, 200.0)], &[75.0, 25.0]);
        check(&[claim(300.0, 10.0, 200.0), claim(20.0, 20.0, 200.0)], &[80.0, 20.0]);
        check(&[claim(60.0, 10.0, 30.0), claim(20.0, 20.0, 40.0)], &[30.0, 40.0]);
        check(&[claim(0.0, 0.0, 200.0), claim(50.0, 50.0, 200.0)], &[0.0, 100.0]);
        check(&[claim(70.0, 70.0, 200.0), claim(50.0, 50.0, 200.0)], &[70.0, 50.0]);
    }
}
