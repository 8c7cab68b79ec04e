//! [`PortRange`]: the node ports of services.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// The range of `--service-node-port-range`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// Invariant: not above `last`.
    first: u16,
    last: u16,
}

impl Default for PortRange {
    fn default() -> Self {
        PortRange::DEFAULT
    }
}

impl PortRange {
    /// The default of kube-apiserver.
    pub const DEFAULT: PortRange = PortRange { first: 30_000, last: 32_767 };

    /// Iterates over the ports.
    pub fn ports(self) -> RangeInclusive<u16> {
        self.first..=self.last
    }

    /// Returns whether a port is in the range.
    pub fn contains(self, port: u16) -> bool {
        self.ports().contains(&port)
    }

    /// Returns the number of ports.
    pub fn size(self) -> usize {
        usize::from(self.last - self.first) + 1
    }

    /// Returns the position of a port in the range, from 0. The port must be in the range.
    pub fn offset(self, port: u16) -> usize {
        usize::from(port - self.first)
    }
}

impl std::fmt::Display for PortRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.first == self.last {
            return write!(f, "{}", self.first);
        }
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for PortRange {
    type Err = String;

    /// Parses `30000-32767`, `30000+2767` or `30000`.
    fn from_str(text: &str) -> Result<Self, String> {
        let fail = |why: &str| format!("{text:?} is not a range of ports: {why}");
        let number = |part: &str| {
            part.trim().parse::<u32>().map_err(|_| fail("expected FIRST-LAST, FIRST+COUNT or PORT"))
        };
        let (first, last) = match (text.split_once('-'), text.split_once('+')) {
            (Some(_), Some(_)) => return Err(fail("it has both - and +")),
            (Some((first, last)), None) => (number(first)?, number(last)?),
            (None, Some((first, count))) => {
                let first = number(first)?;
                (first, first.saturating_add(number(count)?))
            }
            (None, None) => (number(text)?, number(text)?),
        };
        let port = |number: u32| u16::try_from(number).map_err(|_| fail("a port is at most 65535"));
        let first = port(first)?;
        let last = port(last)?;
        if first == 0 {
            return Err(fail("a port is at least 1"));
        }
        if last < first {
            return Err(fail("its end is before its start"));
        }
        Ok(PortRange { first, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_in_each_form() {
        let read = |text: &str| text.parse::<PortRange>().map(|range| range.to_string());
        assert_eq!(read("30000-32767").as_deref(), Ok("30000-32767"));
        assert_eq!(read("80+20").as_deref(), Ok("80-100"));
        assert_eq!(read("7000").as_deref(), Ok("7000"));
        assert_eq!("1-65535".parse::<PortRange>().map(PortRange::size), Ok(65_535));
        for bad in ["", "a", "5-", "1-2+3", "9-8", "0-10", "65535+1", "1-70000"] {
            read(bad).expect_err(bad);
        }
    }
}
