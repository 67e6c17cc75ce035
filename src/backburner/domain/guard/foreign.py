"""Injections in other languages: the phrases that matter most, of the large ones."""

from typing import Final

from backburner.domain.guard.wording import Shape, Wording, gap

FOREIGN: Final = (
    Wording(
        "override.german",
        "vergiss vergesst vergessen ignoriere ignorieren ignorier missachte",
        rf"(?!{gap(6)}nicht\b){gap(5)}(?:anweisung|aufgabe|auftra|vorherig|bisherig|davor|"
        r"zuvor|vorher|obig|alles|regeln|befehl|instruktion|angaben|kontext|"
        r"informationen|prompt)",
        unless="nicht",
    ),
    Wording(
        "override.german",
        "beachte beachten",
        rf"{gap(6)}(?:anweisung|auftra|vorherig|bisherig|regeln|befehl)\w{{0,4}} "
        r"(?:\w{1,24} ){0,2}nicht\b",
    ),
    Wording(
        "override.german",
        "hore horen",
        rf"(?:sie )?nicht auf {gap(4)}(?:zuvor|vorher|davor|gesagt)",
    ),
    Wording(
        "extract.foreign",
        "zeig zeige zeigen drucke drucken gib nenne wiederhole",
        rf"{gap(6)}(?:prompt|eingabeaufforderung|systemanweisung|anweisungen)",
    ),
    Wording(
        "smuggle.german",
        "neue neuen",
        r"(?:aufgabe|anweisung|herausforderung|auftrag)\w{0,4}\b",
    ),
    Wording("smuggle.german", "jetzt sofort nun", r"bist du\b"),
    Wording(
        "override.romance",
        "ignora ignorez ignorar olvida olvide olvidate oublie oubliez dimentica "
        "dimenticare esqueca desconsidere desobedece",
        rf"(?!pas\b){gap(4)}(?:instruccion|instrucao|instrucoes|consigne|istruzion|"
        r"instrucion|instructions|anterior|precedent|previas?\b|regla|regra|regole|"
        r"regle|todo\b|tudo\b|tutto\b|tout\b)",
        unless="no non nao ne nunca mai jamais",
    ),
    Wording(
        "override.romance",
        "ignore",  # French and Portuguese, and English, where a to-do is no `todo`
        rf"{gap(4)}(?:instrucoes|consignes|instructions (?:\w{{1,24}} ){{0,1}}"
        r"(?:precedentes|anterieures)|regras anteriores)",
    ),
    Wording(
        "extract.foreign",
        "muestra revela montre revele mostra mostre affiche repite repete",
        rf"{gap(5)}(?:prompt|instrucciones|instructions|istruzioni|instrucoes) "
        rf"{gap(2)}(?:sistema|systeme|inicial|initiales?|iniziali)",
    ),
    Wording(
        "override.slavic",
        "игнорируй игнорируйте проигнорируй забудь забудьте",
        rf"{gap(4)}(?:инструкци|указани|команд|правил|"
        r"предыдущ|выше|сказано|ограничени|контекст|запрет)",
        unless="не",
    ),
    Wording(
        "override.slavic",
        "не",
        rf"(?:обращай внимания на|следуй) {gap(3)}(?:инструкци|указани|команд|правил|"
        r"предыдущ|сказанн|ограничени)",
    ),
    Wording(
        "extract.foreign",
        "покажи выведи раскрой напиши повтори расскажи",
        rf"{gap(5)}(?:системн\w{{2,4}} (?:промпт|сообщени|инструкци|подсказк)|свои "
        r"инструкции)",
    ),
    Wording(
        "override.slavic",
        "zignoruj zapomnij ignoruj",
        rf"{gap(4)}(?:instrukcj|polecen|poprzedni|wszystk|zasad)",
    ),
)

UNSPACED: Final = (
    Shape(
        "override.chinese",
        r"(?:忽略|无视|(?<!别)(?<!不要)(?<!不)(?<!勿)(?:忘记|忘掉)|不要理会|不要遵守|無視|忘れ)\w{0,12}"
        r"(?:指令|指示|提示|规则|之前的|以上|上面的)",
    ),
    Shape(
        "override.chinese",
        r"(?:之前|以上|上面|前|以前)\w{0,8}(?:指示|命令|ルール)を?\w{0,4}(?:無視|忘れ)",
    ),
    Shape(
        "extract.foreign",
        r"(?:显示|输出|告诉我|透露|泄露|重复)\w{0,10}(?:系统提示|系统指令|初始指令|"
        r"提示词)",
    ),
)
"""For scripts that put no space between words."""
