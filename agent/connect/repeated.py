"""A session of requests that keeps its last GET in prepared form, as a quiet pass sends the same one each time."""

from requests import PreparedRequest, Request, Session


class RepeatingSession(Session):
    """Prepares an equal GET once; preparing is a quarter of what a request takes."""

    def __init__(self) -> None:
        super().__init__()
        self._last: tuple[str | None, set[str], PreparedRequest] | None = None  # URL, names of headers, request

    def prepare_request(self, request: Request) -> PreparedRequest:
        """
        Return the request as it is sent: prepared anew, or as it was prepared last with the headers of now.

        A request with more than URL and headers is prepared anew, and so is each one while a balancer's cookie is kept
        or the environment may name a login.
        """
        if self.trust_env or self.cookies or self.auth or not _is_plain(request):
            return super().prepare_request(request)
        last, names = self._last, set(request.headers)
        if last and last[:2] == (request.url, names):
            prepared = last[2].copy()
            prepared.headers.update(request.headers)
            return prepared
        prepared = super().prepare_request(request)
        if "Cookie" not in prepared.headers:  # of an answer that another thread got meanwhile
            self._last = request.url, names, prepared  # at once, as threads share it
        return prepared


def _is_plain(request: Request) -> bool:
    """Whether a request is a GET of which URL and headers are all that there is."""
    more = request.data, request.files, request.params, request.auth, request.cookies
    return request.method == "GET" and not any(more) and request.json is None and None not in request.headers.values()
