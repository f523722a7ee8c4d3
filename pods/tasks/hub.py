"""The Hugging Face hub, where it answers; the local cache at once, where it does not."""

ANSWER_SECONDS = 5.0  # the client's own retries take over a minute


def go_offline_if_unreachable() -> None:
    """Make the hub's client read its cache instead of retrying a hub that does not answer."""
    import huggingface_hub

    hub = huggingface_hub.constants
    if hub.HF_HUB_OFFLINE:
        return
    try:
        huggingface_hub.utils.get_session().head(hub.ENDPOINT, timeout=ANSWER_SECONDS)
    except Exception:  # whatever the HTTP client of the day raises
        import datasets

        datasets.config.HF_HUB_OFFLINE = hub.HF_HUB_OFFLINE = True
