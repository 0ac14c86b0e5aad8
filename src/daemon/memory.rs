//! How much memory the machine has.

/// Bytes of the machine's memory, and how many of them are available: what programs could still
/// have, caches given up. (0, 0) where the system does not tell as Linux does.
pub(super) fn memory() -> (u64, u64) {
    std::fs::read_to_string("/proc/meminfo").map_or((0, 0), |text| parse(&text))
}

fn parse(meminfo: &str) -> (u64, u64) {
    let bytes = |key: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kib.unwrap_or(0).saturating_mul(1024)
    };
    (bytes("MemTotal"), bytes("MemAvailable"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available_is_more_than_what_is_free() {
        let text =
            "MemTotal:       16 kB\nMemFree:         2 kB\nMemAvailable:    9 kB\nBuffers: 1 kB\n";
        assert_eq!(parse(text), (16 << 10, 9 << 10));
        assert_eq!(parse("MemTotal: lots"), (0, 0));
    }
}
