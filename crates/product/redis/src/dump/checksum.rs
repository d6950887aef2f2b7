//! The checksum of a payload: the CRC-64 of W. Jones, reflected.

const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

const TABLE: [u64; 256] = table();

const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut rest, mut bit) = (byte as u64, 0);
        while bit < 8 {
            rest = if rest & 1 == 1 { rest >> 1 ^ POLYNOMIAL } else { rest >> 1 };
            bit += 1;
        }
        table[byte] = rest;
        byte += 1;
    }
    table
}

pub(super) fn of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |rest, byte| TABLE[usize::from(rest as u8 ^ byte)] ^ rest >> 8)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checksum_equals_that_of_redis() {
        assert_eq!(super::of(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }
}
