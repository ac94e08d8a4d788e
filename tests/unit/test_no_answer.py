"""Why no answer came from Keystone, or from a service behind it."""

from keystoneauth1 import exceptions

from reportclient.keystone import explain


def test_an_untrusted_keystone_is_told_also_where_auth_url_has_no_version() -> None:
    """keystoneauth looks for versions then, and fails with another error than for the certificate."""
    cause = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate"

    text, may_pass = explain(exceptions.DiscoveryFailure(f"no versions: {cause}"), "placement", "placement")

    assert "set [placement] cafile to the CA that signed it" in text
    assert not may_pass
