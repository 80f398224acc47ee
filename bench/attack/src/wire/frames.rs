//! Frames of HTTP/2, and heads without compression.

/// The first bytes of a connection.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// The longest frame that every server takes.
const MAX_FRAME: usize = 16_384;

/// One frame as bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .unwrap_or(u32::MAX)
        .to_be_bytes();
    let mut frame = Vec::with_capacity(9 + payload.len());
    frame.extend_from_slice(&length[1..]);
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// SETTINGS of a client whose server must not compress with a table.
pub(crate) fn settings() -> Vec<u8> {
    // SETTINGS_HEADER_TABLE_SIZE = 0, SETTINGS_ENABLE_PUSH = 0.
    frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0])
}

/// A head, in as many frames as it takes.
pub(crate) fn head(stream: u32, fields: &[(Vec<u8>, Vec<u8>)], ends_stream: bool) -> Vec<u8> {
    let block = block(fields);
    let flags = if ends_stream { END_STREAM } else { 0 };
    let mut parts = block.chunks(MAX_FRAME).peekable();
    let first = parts.next().unwrap_or_default();
    let end = |is_last: bool| if is_last { END_HEADERS } else { 0 };
    let mut bytes = frame(HEADERS, flags | end(parts.peek().is_none()), stream, first);
    while let Some(part) = parts.next() {
        bytes.extend(frame(
            CONTINUATION,
            end(parts.peek().is_none()),
            stream,
            part,
        ));
    }
    bytes
}

/// Fields as literals that are not indexed and not compressed (RFC 7541, 6.2.2).
pub(crate) fn block(fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            push_length(text.len(), &mut block);
            block.extend_from_slice(text);
        }
    }
    block
}

/// An integer with a prefix of seven bits (RFC 7541, 5.1).
fn push_length(mut length: usize, block: &mut Vec<u8>) {
    let low = |length: usize| u8::try_from(length & 0x7f).unwrap_or_default();
    if length < 127 {
        block.push(low(length));
        return;
    }
    block.push(127);
    length -= 127;
    while length >= 128 {
        block.push(low(length) | 0x80);
        length >>= 7;
    }
    block.push(low(length));
}

/// The status of a response, from the beginning of a block without a table: `:status` is its first field.
pub(crate) fn status(mut block: &[u8]) -> Option<u16> {
    const INDEXED: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    // Changes of the table's size.
    while let [0x20..=0x3f, rest @ ..] = block {
        block = rest;
    }
    match block {
        [index @ 0x88..=0x8e, ..] => INDEXED.get(usize::from(index - 0x88)).copied(),
        // A literal whose name is that of entry 8 to 14.
        [0x08..=0x0e | 0x18..=0x1e | 0x48..=0x4e, length, value @ ..] => {
            let value = value.get(..usize::from(length & 0x7f))?;
            let digits = match length & 0x80 {
                0 => value.to_vec(),
                _ => huffman_digits(value),
            };
            std::str::from_utf8(&digits).ok()?.parse().ok()
        }
        _ => None,
    }
}

/// Three digits in the Huffman code of RFC 7541: 0 to 2 have five bits, 3 to 9 six.
fn huffman_digits(bytes: &[u8]) -> Vec<u8> {
    let mut bits = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    let mut digits = Vec::new();
    while digits.len() < 3 {
        let Some(five) = (0..5).try_fold(0, |code, _| Some(code << 1 | bits.next()?)) else {
            break;
        };
        let digit = match five {
            0..=2 => five,
            _ => match bits.next() {
                Some(bit) => (five << 1 | bit).wrapping_sub(22),
                None => break,
            },
        };
        digits.push(b'0'.wrapping_add(digit));
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read_indexed_plain_and_compressed() {
        assert_eq!(status(&[0x88]), Some(200));
        assert_eq!(status(&[0x20, 0x8c, 0x00]), Some(400));
        assert_eq!(status(b"\x08\x03429"), Some(429));
        // 4 = 011010, 2 = 00010, 9 = 011111: 0110 1000 0100 1111 1…
        assert_eq!(
            status(&[0x08, 0x83, 0b0110_1000, 0b0100_1111, 0b1111_1111]),
            Some(429)
        );
    }

    #[test]
    fn long_heads_take_several_frames() {
        let fields = [(b"x".to_vec(), vec![b'a'; 40_000])];
        let bytes = head(1, &fields, true);
        assert_eq!(&bytes[..5], &[0, 0x40, 0, HEADERS, END_STREAM]);
        let last = 9 + MAX_FRAME + 9 + MAX_FRAME;
        assert_eq!(&bytes[last + 3..last + 5], &[CONTINUATION, END_HEADERS]);
        assert_eq!(bytes.len(), 27 + 3 + 4 + 40_000);
    }
}
