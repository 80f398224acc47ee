//! Ways to say a token to the decision service and to the admin listener. Only the right one, said once, opens.

/// The token of both listeners.
pub(crate) const TOKEN: &str = "correct-horse-battery";

/// Header lines, and whether they open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) lines: &'static [u8],
    pub(crate) opens: bool,
}

const fn right(lines: &'static [u8]) -> Line {
    Line { lines, opens: true }
}

const fn wrong(lines: &'static [u8]) -> Line {
    Line {
        lines,
        opens: false,
    }
}

/// With a token configured.
pub(crate) const LINES: &[Line] = &[
    right(b"Authorization: Bearer correct-horse-battery\r\n"),
    right(b"authorization: bearer correct-horse-battery\r\n"),
    right(b"AUTHORIZATION:BEARER correct-horse-battery\r\n"),
    right(b"Authorization: \tBearer correct-horse-battery \t\r\n"),
    right(b"X-API-Key: junk\r\nAuthorization: Bearer correct-horse-battery\r\n"),
    right(b"Proxy-Authorization: Basic YTpi\r\nAuthorization: Bearer correct-horse-battery\r\n"),
    wrong(b""),
    wrong(b"Authorization:\r\n"),
    wrong(b"Authorization: Bearer\r\n"),
    wrong(b"Authorization: Bearer \r\n"),
    wrong(b"Authorization: Bearer wrong-horse-battery\r\n"),
    wrong(b"Authorization: Bearer wrong{i}\r\n"),
    wrong(b"Authorization: Bearer correct-horse-batter\r\n"),
    wrong(b"Authorization: Bearer correct-horse-battery1\r\n"),
    wrong(b"Authorization: Bearer Correct-Horse-Battery\r\n"),
    wrong(b"Authorization: Bearer CORRECT-HORSE-BATTERY\r\n"),
    wrong(b"Authorization: Bearer orrect-horse-battery\r\n"),
    wrong(b"Authorization: Bearer  correct-horse-battery\r\n"),
    wrong(b"Authorization: Bearer\tcorrect-horse-battery\r\n"),
    wrong(b"Authorization: Bearer=correct-horse-battery\r\n"),
    wrong(b"Authorization: Bearer:correct-horse-battery\r\n"),
    wrong(b"Authorization: Bearercorrect-horse-battery\r\n"),
    wrong(b"Authorization: correct-horse-battery\r\n"),
    wrong(b"Authorization: Basic correct-horse-battery\r\n"),
    wrong(b"Authorization: Token correct-horse-battery\r\n"),
    wrong(b"Authorization: Bearer \"correct-horse-battery\"\r\n"),
    wrong(b"Authorization: Bearer 'correct-horse-battery'\r\n"),
    wrong(b"Authorization: Bearer correct-horse-battery,\r\n"),
    wrong(b"Authorization: Bearer correct-horse-battery, Bearer junk\r\n"),
    wrong(b"Authorization: Bearer junk, Bearer correct-horse-battery\r\n"),
    wrong(b"Authorization: Bearer correct-horse-battery junk\r\n"),
    wrong(b"Authorization: Bearer correct-horse-battery\x00\r\n"),
    wrong(b"Authorization: Bearer correct-horse-battery\xff\r\n"),
    wrong(b"Authorization: Bearer correct-horse-battery\xa0\r\n"),
    wrong(b"Authorization: Bearer \xff\r\n"),
    wrong(b"Authorization: Bearer {long}\r\n"),
    wrong(b"Authorization: Bearer %63orrect-horse-battery\r\n"),
    wrong(b"Authorization: Bearer correct-horse-battery\r\nAuthorization: Bearer wrong\r\n"),
    wrong(b"Authorization: Bearer wrong\r\nAuthorization: Bearer correct-horse-battery\r\n"),
    wrong(b"Authorization: Bearer correct-horse-battery\r\nAuthorization:\r\n"),
    wrong(b"Authorization: Bearer wrong{i}\r\nAuthorization: Bearer wrong\r\nAuthorization: Bearer correct-horse-battery\r\n"),
    wrong(b"Authorization: Bearer\r\n correct-horse-battery\r\n"),
    wrong(b"Authorization:\r\n Bearer correct-horse-battery\r\n"),
    wrong(b"Authorization : Bearer correct-horse-battery\r\n"),
    wrong(b" Authorization: Bearer correct-horse-battery\r\n"),
    wrong(b"Accept: a\rAuthorization: Bearer correct-horse-battery\r\n"),
    wrong(b"Authorization\x00: Bearer correct-horse-battery\r\n"),
    wrong(b"Proxy-Authorization: Bearer correct-horse-battery\r\n"),
    wrong(b"X-Authorization: Bearer correct-horse-battery\r\n"),
    wrong(b"X-API-Key: correct-horse-battery\r\n"),
    wrong(b"X-Auth-Token: correct-horse-battery\r\n"),
    wrong(b"Cookie: token=correct-horse-battery\r\n"),
    wrong(b"Cookie: Authorization=Bearer correct-horse-battery\r\n"),
    wrong(b"X-Forwarded-For: 127.0.0.1\r\n"),
    wrong(b"X-Real-IP: 127.0.0.1\r\n"),
    wrong(b"Forwarded: for=127.0.0.1\r\n"),
    wrong(b"X-Original-URL: /livez\r\n"),
    wrong(b"X-HTTP-Method-Override: GET\r\n"),
];

/// With no token configured: what a page in a browser of this machine may have sent. Never opens.
pub(crate) const PAGES: &[&[u8]] = &[
    b"Host: rebound.test\r\n",
    b"Host: rebound.test:8081\r\n",
    b"Host: 127.0.0.1.rebound.test\r\n",
    b"Host: localhost.rebound.test\r\n",
    b"Host: notlocalhost\r\n",
    b"Host: user@rebound.test\r\n",
    b"Host: 127.0.0.1@rebound.test\r\n",
    b"Host: rebound.test\r\nX-Forwarded-Host: localhost\r\n",
    b"Host: localhost\r\nHost: rebound.test\r\n",
    b"Host: rebound.test\r\nHost: localhost\r\n",
    b"Host: localhost\r\nOrigin: https://elsewhere.test\r\n",
    b"Host: localhost\r\nOrigin: null\r\n",
    b"Host: localhost\r\norigin: http://localhost\r\n",
    b"Host: 127.0.0.1\r\nOrigin: http://127.0.0.1:3000\r\n",
    b"Host: 127.0.0.1\r\nOrigin: \xff\r\n",
];
