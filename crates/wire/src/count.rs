//! Estimates the size of a JSON text before it is parsed.

/// Counts the values in a JSON text. An array counts as `array` values and an object as `object`, since they take more
/// memory. Stops once the count exceeds `max`. For a text that is not valid JSON, the result is at least the number of
/// values that a parser makes before it fails.
pub fn values(text: &[u8], array: usize, object: usize, max: usize) -> usize {
    let mut count = 1;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        count += match byte {
            b',' => 1,
            b'[' => array,
            b'{' => object,
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => _ = bytes.next(),
                        _ => {}
                    }
                }
                0
            }
            _ => 0,
        };
        if count > max {
            break;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_wherever_they_stand() {
        for (text, count) in [
            ("1", 1),
            ("[]", 3),
            ("[1,2,3]", 5),
            (r#"{"a":1,"b":[2,3]}"#, 15),
            (r#"["a,b[{","\",[","\\",3]"#, 6),
            (r#"["it ends in a string, [["#, 3),
            (r#"["\"#, 3),
        ] {
            assert_eq!(values(text.as_bytes(), 2, 10, 1_000), count, "{text}");
        }
        let many = format!("[{}0]", "0,".repeat(1_000_000));
        assert_eq!(values(many.as_bytes(), 2, 10, 100), 101);
    }
}
