import unittest

from repeats import first_repeat


class FirstRepeat(unittest.TestCase):
    def test_the_first_word_that_comes_again_is_found(self):
        self.assertEqual(first_repeat("one two three two one", ""), "two")

    def test_ignored_words_may_come_again(self):
        self.assertEqual(first_repeat("the cat and the dog and the cat", "the and"), "cat")

    def test_no_repeat_is_an_empty_answer(self):
        self.assertEqual(first_repeat("one two three", ""), "")


if __name__ == "__main__":
    unittest.main()
