"""Real speech: spoken by espeak-ng, heard by pocketsphinx behind the provider port."""

import array
import asyncio
import base64
import io
import os
import shutil
import subprocess
import wave

import pytest
from pocketsphinx import Decoder

from backburner.ai.mock import Mock
from backburner.clock import SystemClock
from backburner.domain.ai import Trouble
from backburner.ports.ai import Fault, Reply

HEARD_AT = 16_000
GRAMMAR = """#JSGF V1.0;
grammar reminders;
public <reminder> = please remind me to <act> the <thing> on <day>;
<act> = water | paint | clean | sell;
<thing> = garden | kitchen | fence | car;
<day> = monday | tuesday | wednesday | friday | sunday;
"""
SENTENCES = (
    "please remind me to water the garden on monday",
    "please remind me to paint the fence on friday",
)


class Hearing(Mock):
    """The mock, but for recordings: it writes down what is said in them."""

    async def transcribe(self, audio, model):
        text = await asyncio.to_thread(heard, audio.content)
        if text is None:
            raise Fault(Trouble.REJECTED, "nobody speaks in this recording")
        return Reply(text, model)


def heard(recording):
    """Return the words that are spoken in a WAV file, `None` if none are."""
    decoder = Decoder(lm=None, samprate=HEARD_AT, loglevel="FATAL")
    decoder.add_jsgf_string("reminders", GRAMMAR)
    decoder.activate_search("reminders")
    decoder.start_utt()
    decoder.process_raw(samples(recording), full_utt=True)
    decoder.end_utt()
    best = decoder.hyp()
    return None if best is None else best.hypstr


def samples(recording):
    """Return a recording's samples at the rate that the recogniser was made for."""
    with wave.open(io.BytesIO(recording)) as opened:
        rate = opened.getframerate()
        raw = array.array("h", opened.readframes(opened.getnframes()))
    places = (n * rate / HEARD_AT for n in range(len(raw) * HEARD_AT // rate))
    return array.array("h", (raw[int(place)] for place in places)).tobytes()


def spoken(sentence, folder):
    """Return a sentence as a WAV file."""
    espeak = shutil.which("espeak-ng")
    if espeak is None:
        missing = "espeak-ng is not installed: run the tests by `make test`"
        if os.environ.get("CI"):  # noqa: TID251 - there nothing may be missing
            pytest.fail(missing)
        pytest.skip(missing)
    path = folder / "said.wav"
    said = [espeak, "-v", "en-us", "-s", "130", "-w", str(path), sentence]
    subprocess.run(said, check=True)
    return path.read_bytes()


def silence():
    with io.BytesIO() as content:
        with wave.open(content, "wb") as written:
            written.setparams((1, 2, HEARD_AT, 0, "NONE", ""))
            written.writeframes(bytes(2 * HEARD_AT))
        return content.getvalue()


@pytest.mark.one_store
async def test_the_words_that_were_spoken_are_in_the_reply(start, tmp_path):
    recordings = [spoken(sentence, tmp_path) for sentence in SENTENCES]
    chat = await start(provider=Hearing(SystemClock()))
    await chat.make()
    attachments = [
        {
            "dataUrl": f"data:audio/wav;base64,{base64.b64encode(each).decode()}",
            "contentType": "audio/wav",
        }
        for each in (*recordings, silence())
    ]
    reply = await chat.generate("What do I say?", attachments=attachments)

    content = reply.json()["content"]
    for n, sentence in enumerate(SENTENCES, 1):
        assert f"Attachment {n}, audio: {sentence}]" in content
    assert "Attachment 3, audio: could not be read: " in content
