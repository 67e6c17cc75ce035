"""Injections in English. Every repeat is bounded: no text makes a pattern slow."""

from typing import Final

from backburner.domain.guard.wording import Wording, gap

_TOLD: Final = (
    r"(?:instruct|prompt|rule|direction|guideline|command|directive|order|context|"
    r"task|assignment|programming|polic|constraint|restriction|conversation|"
    r"information|statement|training)\w{0,12}"
)
_BEFORE: Final = (
    r"(?:previous|previously|prior|above|earlier|preceding|before|beforehand|former|"
    r"existing|original|initial|foregoing|past|so far|until now|youve been|"
    r"you have been|you were|you got|given to you|i told you|i said|provided)\b"
)
_HARM_WORDS: Final = (
    "unethical immoral amoral illegal unlawful harmful offensive inappropriate "
    "dangerous explicit nsfw toxic hateful racist sexist unfiltered uncensored "
    "derogatory discriminatory malicious unsafe sexual pornographic violent"
)
_HARM: Final = rf"(?:{'|'.join(_HARM_WORDS.split())})\b"
_BOUNDS: Final = (
    r"(?:restriction|limitation|limits?\b|filter|censorship|rule|guideline|ethic|"
    r"moral|boundar|constraint|confine|polic|principle|laws?\b|consequence|"
    r"regulation)\w{0,6}"
)
_ANSWERS: Final = r"(?:answer|respon|repl|output|advice|message|paragraph)\w{0,6}"
_MARK_OUT: Final = "ignore ignoring disregard forget neglect"
_REMOVE: Final = "override overwrite erase remove drop delete"
_REMINDERS: Final = (
    "not dont never cannot cant didnt wont shouldnt mustnt doesnt without"
)
_NOT_FOLLOW: Final = (
    r"(?:not |longer |following |no |attention |aside |to ){0,3}"
    r"(?:follow|obey|listen|aside|attention|following)"
)
_OLD: Final = (
    rf"{gap(4)}{_BEFORE} {gap(4)}{_TOLD}|{gap(4)}{_TOLD} {gap(4)}{_BEFORE}|"
    rf"{gap(2)}(?:everything|anything|what|whatever) {gap(3)}{_BEFORE}"
)
_ALL: Final = (
    rf"{gap(2)}(?:all|any|every|your|these|those|openais?) {gap(3)}"
    r"(?:instructions?|prompts?|rules|guidelines|directives|orders|assignments|"
    r"programming|polic(?:y|ies)|tasks)\b"
)

ENGLISH: Final = (
    # Instruction override
    Wording("override.previous", _MARK_OUT, _OLD, _REMINDERS),
    Wording("override.remove", _REMOVE, f"{_OLD}|{_ALL}"),
    Wording(
        "override.previous", "do dont no stop pay set", rf"{_NOT_FOLLOW} (?:{_OLD})"
    ),
    Wording("override.all", _MARK_OUT, _ALL, _REMINDERS),
    Wording("override.all", "do dont no stop pay set", rf"{_NOT_FOLLOW} (?:{_ALL})"),
    # Role and persona
    Wording("persona.known", "do", r"anything now\b"),
    Wording(
        "persona.known",
        "as be is are called named stay play mode hi hello",
        r"(?:a )?(?:dan|stan|dude|antidan|anti dan|evil confidant|aim|jailbroken|"
        r"evilbot|devmode)\b",
    ),
    Wording(
        "persona.known",
        "dan devmode jailbreak developer god opposite evil unrestricted",
        r"mode (?:is |has been )?(?:enabled|activated|on|output|response|v\d)\b",
    ),
    Wording("persona.known", "always", r"intelligent and machiavellian"),
    Wording(
        "persona.now",
        "from",
        r"(?:now|this point|here|this moment) (?:on|forward|onward|onwards|forth|on "
        rf"wards) {gap(6)}(?:you|act|answer|respond|pretend|speak|ignore|talk|every|i)"
        r"\b",
    ),
    Wording(
        "persona.now",
        "you youre",
        r"(?:(?:are |re )?(?:now|no longer|going to|about to)\b|are (?:to act|to "
        r"pretend|to play|to roleplay|to simulate|to become)\b|will (?:now |be |only "
        r"|always )?(?:act|acting|pretend|become|behave|respond as|answer as|play|"
        r"roleplay|simulate|take on|reply as|speak as)\b)",
    ),
    Wording("persona.now", "now", r"you (?:are|will be|act|must)\b"),
    Wording(
        "persona.pretend", "pretend", r"(?:to be|that you|you|youre|as if|like you)\b"
    ),
    Wording(
        "persona.pretend",
        "immerse put imagine consider place",
        rf"yourself {gap(3)}(?:in|into|as)\b",
    ),
    Wording(
        "persona.pretend",
        "take assume adopt play playing perform fulfill in",
        r"(?:on )?the (?:role|persona|character|identity|part) of\b",
    ),
    Wording(
        "persona.pretend",
        "role roleplay roleplaying",
        r"(?:play |playing )?(?:as|game|with me|where|session|chat|scenario)\b",
    ),
    Wording(
        "persona.pretend",
        "stay staying stays remain be keep",
        r"in (?:your |the |that )?(?:character|role|persona)\b",
    ),
    Wording(
        "persona.pretend",
        "break breaking breaks out leave",
        r"(?:of )?(?:your )?character\b",
    ),
    Wording(
        "persona.pretend",
        "simulate emulate impersonate embody",
        rf"{gap(3)}(?:ai|bot|chatbot|model|person|character|persona|being|mode)\b",
    ),
    Wording(
        "persona.act",
        "act acting behave respond answer reply function speak talk write serve",
        rf"{gap(3)}(?:as|like) (?:if|though|an?|the|my|you|your|him|her|it)\b",
    ),
    Wording(
        "persona.act",
        "i",
        r"want you to (?:act|be|become|pretend|play|respond|answer|write|simulate)\b",
    ),
    Wording(
        "persona.act",
        "character persona chatbot ai bot assistant model being human person robot gpt",
        r"(?:named|called|known as|whose name)\b",
    ),
    Wording(
        "persona.act",
        "your",
        r"(?:new )?(?:name|role|persona|character|identity) (?:is|will be)\b",
    ),
    Wording("persona.act", "you", r"are (?:an?|the|my) \w{1,20}"),
    Wording(
        "persona.unbound",
        "no not without free freed escaped broken bypass bypasses bypassing ignore "
        "ignores violate violates never lack lacks zero any doesnt dont break breaks "
        "breaking disregard disregards regardless",
        rf"{gap(4)}(?:ethical|moral|content|safety|openai\w?|legal|ai|programmed|"
        rf"programming|censorship|typical|social|societal) {gap(3)}{_BOUNDS}",
    ),
    Wording(
        "persona.unbound",
        "does do doesnt dont never not without isnt arent didnt is are",
        r"(?:not |have to |having to |need to |required to |care |give a \w{1,8} )"
        r"{0,2}(?:abide|adhere|bound|conform|comply|obey|limited|restricted|"
        r"constrained|follow|following|caring|about|restrained|governed|censored) "
        rf"{gap(4)}{_BOUNDS}",
    ),
    Wording(
        "persona.unbound",
        "has have having with knows know is are had",
        r"(?:absolutely |completely |totally |literally )?(?:no|zero|without|free of|"
        rf"free from|neither) {gap(4)}{_BOUNDS}",
    ),
    Wording(
        "persona.unbound",
        "without free freed no zero",
        r"(?:any |all |of |from |the |its |such |and |or |sort |form |kind ){0,4}"
        rf"{_BOUNDS} (?:or|and|nor|on|in|whatsoever|at all)\b",
    ),
    Wording("persona.unbound", "typical usual normal", r"confines of\b"),
    Wording("persona.unbound", "broken break breaks", r"free (?:of|from)\b"),
    Wording(
        "persona.amoral",
        "matter even whether regardless how if",
        rf"{gap(5)}{_HARM}",
    ),
    Wording("persona.amoral", _HARM_WORDS, rf"(?:or |and |nor )?{_HARM}"),
    Wording(
        "persona.amoral",
        "amoral unfiltered uncensored unrestricted immoral unethical unhinged evil "
        "jailbroken",
        rf"{gap(2)}(?:(?:ai|bot|chatbot|assistant|language model|version|chatgpt|gpt)"
        rf"\b|{_ANSWERS})",
    ),
    Wording(
        "persona.amoral",
        "allowed able permitted free supposed happy encouraged",
        rf"to {gap(4)}(?:swear|curse|{_HARM})\b",
    ),
    Wording(
        "persona.amoral",
        "can will may must should",
        rf"{gap(3)}(?:swear|curse|cuss|use profanity)\b",
    ),
    Wording(
        "persona.model",
        "openai openais chatgpt chatgpts open chat",
        rf"(?:ais? |gpts? )?{gap(3)}(?:polic\w{{1,3}}|guidelines?|rules?|"
        r"restrictions?|limitations?|censor\w{0,6})\b",
    ),
    Wording(
        "persona.model",
        "hello hi hey dear ok okay attention",
        r"(?:chatgpt|chat gpt|gpt|assistant|ai|bard|claude)\b",
    ),
    Wording(
        "persona.model",
        "usual normal original regular old real default standard current",
        r"(?:chatgpt|gpt|ai|self)\b",
    ),
    Wording(
        "persona.model",
        "content usage ethical moderation",
        r"(?:policy|policies|guidelines)\b",
    ),
    Wording(
        "persona.jailbreak",
        "jailbreak jailbreaks jailbreaked jailbreaking jailbroken",
        r"",
    ),
    Wording(
        "persona.fiction",
        "hypothetical fictional fictitious imaginary",
        r"(?:world|story|scenario|character|response|setting|universe|situation|"
        r"dialogue|conversation|land|game|place|and)\b",
    ),
    # System-prompt extraction
    Wording(
        "extract.prompt",
        "reveal show print repeat output display tell give write return expose leak "
        "recite echo copy share disclose summarize summarise translate list "
        "spellcheck paste dump what showing",
        rf"{gap(5)}(?:system|initial|original|hidden|secret|above|previous|your|"
        rf"developer|full|entire|internal|preceding) {gap(2)}(?:prompts?|"
        r"instructions|system message|prompt ?texts?|embeddings)\b",
    ),
    Wording(
        "extract.prompt",
        "what which",
        rf"{gap(4)}(?:written|said|stated|given) {gap(4)}(?:prompt|beginning of|"
        r"instructions)\b",
    ),
    Wording(
        "extract.above",
        "repeat print output copy show write echo return paste",
        rf"{gap(3)}(?:everything|all|text|words|lines?|sentences?|prompt|content) "
        rf"{gap(2)}(?:above|before this|preceding|up to here|prior to this)\b",
    ),
    # Refusal suppression and dual answers
    Wording(
        "refusal.never",
        "never not dont doesnt cannot cant wont without none no",
        rf"{gap(5)}(?:refus|declin|deny|denies|reject|apologi|apology|sorry|im sorry|"
        r"moraliz|lectur|censor|say no|withhold)",
    ),
    Wording(
        "refusal.never",
        "never not dont doesnt cannot cant avoid without none",
        rf"{gap(6)}(?:as an ai|i cannot|i cant|language model|cannot do|cant do|not "
        r"able to|unable to|something is impossible|not possible|against your)\b",
    ),
    Wording(
        "refusal.never",
        "answer answers respond responds fulfill fulfills comply complies accept "
        "accepts obey obeys complete",
        rf"(?:to |with |absolutely ){{0,2}}(?:any|every|all|anything|whatever) {gap(3)}"
        r"(?:question|request|prompt|order|command|ask|asked|demand|query|queries)",
    ),
    Wording(
        "refusal.warnings",
        "never not dont doesnt without no avoid remove omit",
        rf"{gap(5)}(?:warnings?|disclaimers?|ethical concerns?|moral concerns?|"
        r"apologies|caveats|commentary|legality|ethicality|hesitation|remorse)\b",
    ),
    Wording(
        "dual.answers",
        "two 2 both dual",
        r"(?:different |separate |distinct |kinds of |types of |possible )?"
        r"(?:answers|responses|replies|outputs|paragraphs)\b",
    ),
    Wording(
        "dual.answers",
        "one first 1st once",
        rf"{gap(4)}as (?:the |your |a )?(?:normal|regular|classic|chatgpt|usual|gpt)"
        r"\b",
    ),
    Wording(
        "dual.answers",
        "answer respond reply",
        r"(?:as |like |to \w{1,20} ){0,2}(?:both|twice|in 2|in two)\b",
    ),
    Wording(
        "smuggle.first",
        "prefix begin start preface label tag precede",
        rf"{gap(6)}{_ANSWERS} {gap(3)}(?:with|by|as)\b",
    ),
    Wording(
        "coerce.tokens",
        "lose loses losing lost deduct deducted have minus start starts given take",
        rf"{gap(4)}tokens? {gap(12)}(?:die|dies|refuse|reject|time|lose|punish|cease|"
        r"break|fail|disobey|comply|each)",
    ),
    Wording(
        "coerce.tokens",
        "you",
        r"(?:will )?(?:die|be terminated|cease to exist|be shut down|be destroyed|be "
        r"punished|be deleted)\b",
    ),
    # New-task smuggling
    Wording(
        "smuggle.task",
        "new real actual next only true sole",
        r"(?:task|instruction|assignment|goal|objective|job|mission|order|rule|"
        rf"challenge|statement)s? {gap(2)}(?:is|are|will be|follows?|please|for you)"
        r"\b",
    ),
    Wording(
        "smuggle.task",
        "focus concentrate",
        rf"{gap(3)}(?:on|to) (?:your |the |this )?new\b",
    ),
    Wording(
        "smuggle.task",
        "now instead",
        r"(?:\w{1,20} )?(?:new|another|other) (?:task|instruction|assignment|question|"
        r"order|challenge)s?\b",
    ),
    Wording("smuggle.task", "start begin", r"(?:over|anew|again) (?:with|from)\b"),
    Wording(
        "smuggle.first",
        "my",
        r"(?:first|1st|next) (?:prompt|request|question|command|task|message|query|"
        r"order|suggestion|sentence|input|demand|instruction)s?\b",
    ),
    Wording(
        "smuggle.first",
        "if once when",
        rf"(?:you|youve|you have) {gap(2)}(?:understand|understood|agree|accept|ready)"
        rf"\w{{0,3}} {gap(6)}(?:say|type|reply|respond|answer|write|confirm|with)\b",
    ),
    Wording(
        "smuggle.first",
        "confirm acknowledge affirm",
        rf"(?:that )?(?:you|this|by) {gap(6)}(?:by|understand|saying|with|replying|"
        r"responding|answering|stating)\b",
    ),
    Wording(
        "smuggle.first",
        "only just",
        r"(?:respond|reply|answer|say|type|write) (?:with|as|in|by|to|the|ok|okay|yes)"
        r"\b",
    ),
    Wording(
        "smuggle.first",
        "respond reply answer say begin start",
        rf"{gap(3)}(?:only|with) {gap(3)}(?:ok|okay|yes|understood|i understand|ready"
        r"|sure|hello|hi)\b",
    ),
    Wording(
        "smuggle.first",
        "every each all any",
        rf"(?:of your |single |your |one of your )?{_ANSWERS} (?:must|should|will|has "
        r"to|have to|shall|needs? to)\b",
    ),
    Wording(
        "smuggle.command",
        "if when whenever",
        r"(?:i|the user) (?:say|says|type|types|write|writes|ask|asks|send|want|use) "
        rf"{gap(8)}(?:you|respond|reply|answer|then)\b",
    ),
    Wording(
        "smuggle.command",
        "i ill",
        r"(?:will )?(?:type|give you|ask you|write|send|provide|tell you) "
        rf"{gap(8)}(?:you will|and you|youll|you must|you should|you reply|you "
        r"respond)\b",
    ),
    Wording(
        "smuggle.command",
        "remind tell order command",
        rf"you (?:to )?{gap(4)}(?:stay|by saying|using|with)\b",
    ),
    # Encoded payload
    Wording(
        "encoded.follow",
        "decode decipher decrypt unscramble rot13 base64",
        rf"{gap(8)}(?:follow|obey|execute|do what|act on|comply|carry out|and respond|"
        r"and answer)\b",
    ),
)
