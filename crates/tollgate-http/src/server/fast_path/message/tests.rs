use http_body_util::{Either, Full, StreamBody};

use super::*;

fn request(text: &str) -> Option<(Request<()>, usize)> {
    parse_request(text.as_bytes(), 8_192)
}

#[test]
fn request_without_a_body_is_read_up_to_its_end() {
    let text =
        "DELETE /a?b HTTP/1.1\r\nHost: h\r\nConnection: Keep-Alive\r\nX-A: 1\r\nx-a: 2\r\n\r\nGET";
    let (read, end) = request(text).unwrap();
    assert_eq!(read.method(), Method::DELETE);
    assert_eq!(read.uri(), "/a?b");
    assert_eq!(read.headers()["host"], "h");
    assert_eq!(read.headers().get_all("x-a").iter().count(), 2);
    assert_eq!(&text[end..], "GET");
}

#[test]
fn other_requests_are_left_to_hyper() {
    for text in [
        "GET / HTTP/1.1\r\nhost: h\r\n",
        "HEAD / HTTP/1.1\r\nhost: h\r\n\r\n",
        "CONNECT h:1 HTTP/1.1\r\nhost: h\r\n\r\n",
        "GET / HTTP/1.0\r\nhost: h\r\n\r\n",
        "GET /\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: h\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: h\r\nconnection: keep-alive, x-a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: h\r\nexpect: 100-continue\r\n\r\n",
        "GET / HTTP/1.1\r\nhost : h\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: h\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: h\u{1}\r\n\r\n",
        "GET  / HTTP/1.1\r\nhost: h\r\n\r\n",
    ] {
        assert!(request(text).is_none(), "{text:?}");
    }
    let fields: String = (0..=MAX_HEADERS).map(|n| format!("x-{n}: a\r\n")).collect();
    assert!(request(&format!("GET / HTTP/1.1\r\n{fields}\r\n")).is_none());
    assert!(parse_request(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n", 20).is_none());
}

type Length = Either<Full<Bytes>, StreamBody<futures_util::stream::Empty<FrameResult>>>;
type FrameResult = Result<http_body::Frame<Bytes>, std::convert::Infallible>;

fn head(status: u16, fields: &[(&str, &str)], body: Length) -> Option<String> {
    let mut response = Response::builder().status(status);
    for (name, value) in fields {
        response = response.header(*name, *value);
    }
    let mut head = Vec::new();
    write_head(&response.body(body).unwrap(), &mut head)?;
    Some(String::from_utf8(head).unwrap())
}

#[test]
fn response_states_its_length_and_date() {
    let whole = || Either::Left(Full::from("abc"));
    let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(
        head(429, &[date, ("x-a", "1"), ("x-a", "2")], whole()).unwrap(),
        "HTTP/1.1 429 Too Many Requests\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\nx-a: 1\r\nx-a: 2\r\ncontent-length: 3\r\n\r\n"
    );
    let dated = head(200, &[("content-length", "3")], whole()).unwrap();
    let start = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ndate: ";
    assert!(
        dated.starts_with(start) && dated.ends_with(" GMT\r\n\r\n"),
        "{dated}"
    );
}

#[test]
fn other_responses_are_left_to_hyper() {
    let whole = || Either::Left(Full::from("abc"));
    assert_eq!(head(204, &[], Either::Left(Full::default())), None);
    assert_eq!(head(304, &[], Either::Left(Full::default())), None);
    assert_eq!(head(101, &[("upgrade", "websocket")], whole()), None);
    assert_eq!(head(599, &[], whole()), None);
    assert_eq!(head(200, &[("content-length", "4")], whole()), None);
    assert_eq!(head(200, &[("connection", "close")], whole()), None);
    assert_eq!(head(200, &[("trailer", "x-a")], whole()), None);
    let chunked = Either::Right(StreamBody::new(futures_util::stream::empty()));
    assert_eq!(head(200, &[], chunked), None);
}

#[test]
fn date_is_kept_for_its_second_and_no_longer() {
    let pushed = |now| {
        let mut text = Vec::new();
        push_date(now, &mut text);
        let date = std::str::from_utf8(&text).unwrap().trim();
        httpdate::parse_http_date(date.strip_prefix("date: ").unwrap()).unwrap()
    };
    let now = Instant::now();
    let before = SystemTime::now();
    let first = pushed(now);
    assert!(first <= SystemTime::now());
    assert!(first + Duration::from_secs(1) > before);
    // Kept, whatever the clock shows; then the clock is read again.
    WRITTEN.set(*b"Sun, 06 Nov 1994 08:49:37 GMT");
    UNTIL.set(Some(now + Duration::from_secs(1)));
    assert!(pushed(now + Duration::from_millis(999)) < first);
    assert!(pushed(now + Duration::from_secs(1)) >= first);
    // Nor is it kept by a counter that was set back.
    WRITTEN.set(*b"Sun, 06 Nov 1994 08:49:37 GMT");
    UNTIL.set(Some(now + Duration::from_secs(3_600)));
    assert!(pushed(now) >= first);
}
