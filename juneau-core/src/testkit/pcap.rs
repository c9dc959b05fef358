//! Captures in the classic pcap format, as much as tests and examples need.

/// Writes frames as a capture of Ethernet, one microsecond apart.
#[must_use]
pub fn write(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 0xffff, 1] {
        file.extend(word.to_le_bytes());
    }
    for (number, frame) in frames.iter().enumerate() {
        for word in [0, number as u32, frame.len() as u32, frame.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

/// Reads the frames of a capture of Ethernet in either byte order; `None` when it is something else or cut short.
#[must_use]
pub fn read(file: &[u8]) -> Option<Vec<Vec<u8>>> {
    let word = |offset: usize| file.get(offset..offset + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    // Microseconds or nanoseconds.
    let number: fn([u8; 4]) -> u32 = match u32::from_le_bytes(word(0)?) {
        0xa1b2_c3d4 | 0xa1b2_3c4d => u32::from_le_bytes,
        0xd4c3_b2a1 | 0x4d3c_b2a1 => u32::from_be_bytes,
        _ => return None,
    };
    if number(word(20)?) != 1 {
        return None;
    }
    let mut frames = Vec::new();
    let mut offset = 24;
    while offset < file.len() {
        let length = number(word(offset + 8)?) as usize;
        frames.push(file.get(offset + 16..)?.get(..length)?.to_vec());
        offset += 16 + length;
    }
    Some(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let frames = vec![vec![1, 2, 3], vec![], vec![9; 1500]];
        let file = write(&frames);
        assert_eq!(read(&file), Some(frames));
        assert_eq!(read(&file[..file.len() - 1]), None);
        assert_eq!(read(b"not a capture"), None);
    }
}
